"""What a decider sends and reads back, through both clients, on librdkafka's own mock cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams.runtime.decider.echo import Echo, EchoReader
from streams.runtime.decider.outgoing import CONFIG, TOGETHER_MAX, Outgoing
from streams.runtime.decider.wire import CAUSE, DECISION, Headers
from streams.runtime.native import Choice, sending
from streams.runtime.native.feed import opened
from tests.runtime.cluster import CHOICES, TOPIC, WAIT_S, Cluster, until

CAUSED: Headers = [(CAUSE, b"12345678")]


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.create()
    return made


@pytest.fixture(params=CHOICES)
def choice(request: pytest.FixtureRequest) -> Choice:
    chosen: Choice = request.param
    return chosen


def outgoing(cluster: Cluster, choice: Choice, **more: Any) -> Outgoing:
    return Outgoing(TOPIC, lambda: sending.opened(cluster.kafka, TOPIC, choice, **CONFIG, **more))


class Reading:
    """An echo reader and what it has handed over."""

    def __init__(self, cluster: Cluster, choice: Choice) -> None:
        self.echoes: list[Echo] = []
        self.errors: list[BaseException] = []
        self._held = threading.Event()
        consumer, feed = opened(cluster.kafka, "g", TOPIC, choice)
        self.reader = EchoReader(
            consumer, TOPIC, hand=self._hand, failed=self.errors.append, feed=feed
        )
        self.reader.start()

    def _hand(self, echo: Echo) -> None:
        if echo.partition >= 0:
            self.echoes.append(echo)
        self.reader.done()

    def read(self, partition: int, what: Callable[[Echo], list[Any]]) -> list[Any]:
        echoes = [one for one in list(self.echoes) if one.partition == partition]
        return [found for one in echoes for found in what(one)]

    def offsets(self, partition: int) -> list[Any]:
        return self.read(partition, lambda echo: list(echo.offsets))

    def stop(self) -> None:
        self.reader.stop()
        self.reader.join(WAIT_S)
        assert not self.reader.is_alive()
        assert self.errors == []


@pytest.fixture
def reading(cluster: Cluster, choice: Choice) -> Iterator[Reading]:
    made = Reading(cluster, choice)
    yield made
    made.stop()


def signature(number: int) -> bytes:
    return b"%040d" % number


def test_what_was_sent_is_read_back(cluster: Cluster, choice: Choice, reading: Reading) -> None:
    out = outgoing(cluster, choice)
    append, count = out.to(1), TOGETHER_MAX + 10
    append("nonce", b"", b"a claim", [])
    for n in range(count):
        append("nonce", b"key", b"%d" % n, [(DECISION, signature(n)), *CAUSED])
    out.flush()
    reading.reader.follow(1, 0)
    until(lambda: len(reading.offsets(1)) == count + 1)
    assert out.failures() == []
    assert reading.offsets(1) == list(range(count + 1))
    assert reading.read(1, lambda echo: list(echo.values[:])) == [
        b"a claim",
        *(b"%d" % n for n in range(count)),
    ]
    decisions = reading.read(1, lambda echo: list(echo.decisions))
    assert decisions == [None, *map(signature, range(count))]
    headers = reading.read(1, lambda echo: [echo.headers[at] for at in range(len(echo.offsets))])
    assert [one or [] for one in headers] == [
        [],
        *([(DECISION, signature(n)), *CAUSED] for n in range(count)),
    ]
    stamps = reading.read(1, lambda echo: [echo.append_ms(at) for at in range(len(echo.offsets))])
    assert all(stamp > 0 for stamp in stamps)


def test_only_the_first_header_is_the_decision(
    cluster: Cluster, choice: Choice, reading: Reading
) -> None:
    cluster.put(0, b"", headers=[("other", b"x"), (DECISION, signature(1))])
    cluster.put(0, b"", headers=[(DECISION, None)])
    cluster.put(0, b"", headers=[(DECISION, b"short")])
    reading.reader.follow(0, 0)
    until(lambda: len(reading.offsets(0)) == 3)
    assert reading.read(0, lambda echo: list(echo.decisions)) == [None, None, b"short"]


def test_a_partition_that_is_left_and_followed_again_is_read_from_there(
    cluster: Cluster, reading: Reading
) -> None:
    cluster.put(2, *(b"%d" % n for n in range(100)))
    reading.reader.follow(2, 40)
    until(lambda: reading.offsets(2)[-1:] == [99])
    assert reading.offsets(2) == list(range(40, 100))
    reading.reader.leave(2)
    reading.reader.follow(2, 90)
    until(lambda: len(reading.offsets(2)) == 70)
    assert reading.offsets(2)[60:] == list(range(90, 100))


def test_nothing_is_sent_before_it_is_flushed_or_many(cluster: Cluster, choice: Choice) -> None:
    out = outgoing(cluster, choice, **{"message.max.bytes": 1_000})
    append = out.to(0)
    append("nonce", b"", b"x" * 2_000, [])  # so that sending shows at once
    assert out.failures() == []
    out.flush()
    assert [found[:2] for found in out.failures()] == [(0, "nonce")]
    for _ in range(TOGETHER_MAX):
        append("other", b"", b"x" * 2_000, [])
    assert [found[:2] for found in out.failures()] == [(0, "other")]


def test_a_loss_ends_all_epochs_that_wrote_through_the_producer(
    cluster: Cluster, choice: Choice
) -> None:
    out = outgoing(cluster, choice)
    first, second = out.to(0), out.to(1)
    first("old", b"", b"1", [])
    first("new", b"", b"2", [])
    second("its", b"", b"3", [])
    out.flush()
    out.to(77)("far", b"", b"4", [])  # there is no such partition
    out.flush()
    lost: list[tuple[int, str, str]] = []
    until(lambda: lost.extend(out.failures()) or lost)
    assert {(partition, nonce) for partition, nonce, _ in lost} == {
        (0, "new"),
        (1, "its"),
        (77, "far"),
    }
    assert out.failures() == []
    second("again", b"", b"5", [])
    out.flush()
    out.close()
    assert out.failures() == []
