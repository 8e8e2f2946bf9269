"""The lane's reader over both of its feeds, on librdkafka's own mock cluster: real fetches, groups
and seeks, and no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import Message

from streams.runtime.lane.reader import Reader
from streams.runtime.lane.span import Seat, Span
from streams.runtime.native import Choice
from streams.runtime.native.feed import ColumnFeed, opened
from streams.runtime.settings import Kafka
from tests.runtime.cluster import (
    BUILT,
    CHOICES,
    PARTITIONS,
    TOPIC,
    WAIT_S,
    Cluster,
    numbered,
    until,
)
from tests.runtime.lane.bed import content


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


class Lane:
    """A reader and what it has handed over; its spans are done with at once unless `hold`."""

    def __init__(self, kafka: Kafka, choice: Choice, *, hold: bool = False, **more: Any) -> None:
        self.spans: list[Span] = []
        self.errors: list[BaseException] = []
        self.starts: dict[int, int] = {}
        self.hold = hold
        consumer, self.feed = opened(kafka, "g", TOPIC, choice)
        options = {"rows_max": 1_000, "linger_ms": 0, "idle_ms": 600_000, **more}
        self.reader = Reader(
            consumer,
            TOPIC,
            locate=lambda seat: self.starts.get(seat.partition, 0),
            hand=self._hand,
            failed=self.errors.append,
            left=lambda _: None,
            ends=lambda *_: None,
            feed=self.feed,
            **options,
        )
        self.reader.start()

    def _hand(self, span: Span) -> None:
        self.spans.append(span)
        if not self.hold:
            self.reader.done()

    def messages(self, partition: int) -> list[Message]:
        found = [span for span in list(self.spans) if span.seat.partition == partition]
        return [message for span in found for message in span.messages]

    def offsets(self, partition: int) -> list[int]:
        found = [span for span in list(self.spans) if span.seat.partition == partition]
        return [offset for span in found for offset in span.offsets().tolist()]

    def stop(self) -> None:
        self.reader.stop()
        if self.hold:
            self.hold = False
            for _ in self.spans:
                self.reader.done()
        self.reader.join(WAIT_S)
        assert not self.reader.is_alive()
        assert self.errors == []


@pytest.fixture(params=CHOICES)
def lanes(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Callable[..., Lane]]:
    made: list[Lane] = []

    def make(**more: Any) -> Lane:
        made.append(Lane(cluster.kafka, request.param, **more))
        return made[-1]

    yield make
    for lane in made:
        lane.stop()


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def test_records_come_with_all_that_they_hold(cluster: Cluster, lanes: Callable[..., Lane]) -> None:
    headers = [("a", b"1"), ("nothing", None), ("a", b""), ("ü", b"\xff")]
    cluster.put(1, b"plain", timestamp=1_700_000_000_001)
    cluster.put(1, None, key=b"k", timestamp=1_700_000_000_002)
    cluster.put(1, b"", key=b"", headers=headers, timestamp=1_700_000_000_003)
    cluster.put(1, b"x" * 2_000_000, timestamp=1_700_000_000_004)
    cluster.put(1, b"\x00", headers=[("one", b"v")], timestamp=1_700_000_000_005)
    lane = lanes()
    until(lambda: len(lane.offsets(1)) == 5)
    assert [content(one) for one in lane.messages(1)] == [
        (TOPIC, 1, 0, None, b"plain", None, (1, 1_700_000_000_001)),
        (TOPIC, 1, 1, b"k", None, None, (1, 1_700_000_000_002)),
        (TOPIC, 1, 2, b"", b"", headers, (1, 1_700_000_000_003)),
        (TOPIC, 1, 3, None, b"x" * 2_000_000, None, (1, 1_700_000_000_004)),
        (TOPIC, 1, 4, None, b"\x00", [("one", b"v")], (1, 1_700_000_000_005)),
    ]


def test_many_records_come_once_and_in_order(cluster: Cluster, lanes: Callable[..., Lane]) -> None:
    for partition in range(PARTITIONS):
        cluster.put(partition, *numbered(0, 5_000))
    lane = lanes()
    for partition in range(PARTITIONS):
        until(lambda p=partition: len(lane.offsets(p)) >= 5_000)
        assert lane.offsets(partition) == list(range(5_000))
        assert values(lane.messages(partition)) == numbered(0, 5_000)
    assert max(map(len, lane.spans)) <= 1_000


def test_reading_begins_where_it_is_told(cluster: Cluster, lanes: Callable[..., Lane]) -> None:
    cluster.put(2, *numbered(0, 100))
    lane = lanes()
    lane.starts[2] = 40
    until(lambda: lane.offsets(2)[-1:] == [99])
    assert lane.offsets(2) == list(range(40, 100))
    cluster.put(2, b"later")
    until(lambda: lane.offsets(2)[-1:] == [100])


def test_a_restart_reads_again_and_nothing_of_before(
    cluster: Cluster, lanes: Callable[..., Lane]
) -> None:
    cluster.put(0, *numbered(0, 3_000))
    lane = lanes()
    until(lambda: len(lane.offsets(0)) == 3_000)
    old, fresh = lane.spans[-1].seat, Seat(TOPIC, 0)
    lane.reader.restart(old, fresh, 1_234)
    again = lambda: [o for s in lane.spans if s.seat is fresh for o in s.offsets().tolist()]  # noqa: E731
    until(lambda: again()[-1:] == [2_999])
    assert again() == list(range(1_234, 3_000))


def test_what_waits_while_the_pump_stands_still_comes_later(
    cluster: Cluster, lanes: Callable[..., Lane]
) -> None:
    cluster.put(0, *numbered(0, 20_000))
    lane = lanes(hold=True, rows_max=500, spans_max=1)
    until(lambda: lane.reader._paused)
    assert lane.reader.queued_rows < 20_000
    lane.hold = False
    lane.reader.done()
    until(lambda: lane.offsets(0)[-1:] == [19_999])
    assert lane.offsets(0) == list(range(20_000))


def test_a_group_of_two_shares_the_partitions_and_misses_nothing(
    cluster: Cluster, lanes: Callable[..., Lane]
) -> None:
    for partition in range(PARTITIONS):
        cluster.put(partition, *numbered(0, 500))
    one = lanes()
    until(lambda: all(len(one.offsets(p)) == 500 for p in range(PARTITIONS)))
    other = lanes()
    other.starts = one.starts = dict.fromkeys(range(PARTITIONS), 500)
    until(lambda: len(other.reader.seats) == 2 and len(one.reader.seats) == 2)
    for partition in range(PARTITIONS):
        cluster.put(partition, *numbered(500, 900))
    for partition in range(PARTITIONS):
        both = lambda p=partition: one.offsets(p)[500:] + other.offsets(p)  # noqa: E731
        until(lambda both=both: len(both()) >= 400)
        assert both() == list(range(500, 900))
    other.stop()
    one.starts = dict.fromkeys(range(PARTITIONS), 900)
    until(lambda: len(one.reader.seats) == PARTITIONS)
    for partition in range(PARTITIONS):
        cluster.put(partition, b"last")
        until(lambda p=partition: one.offsets(p)[-1:] == [900])


@BUILT
def test_a_feed_whose_consumer_is_closed_says_so(cluster: Cluster) -> None:
    cluster.put(0, b"one")
    lane = Lane(cluster.kafka, "native")
    until(lambda: lane.reader.joined)
    lane.stop()
    with pytest.raises(RuntimeError, match="closed"):
        lane.feed.first(0.001)
    with pytest.raises(RuntimeError, match="closed"):
        lane.feed.place([0])
    lane.feed.leave([0])


@BUILT
def test_a_feed_needs_a_consumer_made_for_it() -> None:
    with pytest.raises(RuntimeError, match="no consumer"):
        ColumnFeed(None, TOPIC)


@BUILT
def test_the_locked_client_is_known_to_the_glance_at_headers() -> None:
    from streams.runtime.native.available import library

    assert library().peeks()
