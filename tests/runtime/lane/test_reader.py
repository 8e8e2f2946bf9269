"""The reader thread over a pretended consumer: hand-over, rebalance, restart, pressure, stop."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from streams.runtime.lane.feed import MessageFeed, Run
from streams.runtime.lane.reader import Reader
from streams.runtime.lane.span import Seat, Span
from tests.runtime.lane.bed import held, message

pytestmark = pytest.mark.usefixtures("either_reader")

WAIT_S = 10.0


def until(happens: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class FakeConsumer:
    """Gives what is put into `events`: messages, or callables that run inside `poll`."""

    def __init__(self) -> None:
        self.events: deque[Any] = deque()
        self.calls: list[tuple[str, Any]] = []
        self.callbacks: dict[str, Any] = {}
        self.closed = False
        self.users: set[int] = set()

    def _called(self, name: str, what: Any = None) -> None:
        self.users.add(threading.get_ident())
        self.calls.append((name, what))

    def named(self, name: str) -> list[Any]:
        return [what for called, what in list(self.calls) if called == name]

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self._called("subscribe", topics)
        self.callbacks = callbacks

    def assign(self, *partitions: int) -> None:
        """Let the next poll assign these."""
        places = [TopicPartition("test.clicks", p) for p in partitions]
        self.events.append(lambda: self.callbacks["on_assign"](self, places))

    def revoke(self, *partitions: int, how: str = "on_revoke") -> None:
        places = [TopicPartition("test.clicks", p) for p in partitions]
        self.events.append(lambda: self.callbacks[how](self, places))

    def poll(self, timeout: float) -> Message | None:
        self.users.add(threading.get_ident())
        while self.events:
            event = self.events.popleft()
            if isinstance(event, Message):
                return event
            event()
        time.sleep(min(timeout, 0.001))
        return None

    def consume(self, count: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        while len(found) < count and (one := self.poll(0)) is not None:
            found.append(one)
        return found

    def incremental_assign(self, places: list[TopicPartition]) -> None:
        self._called("assign", {p.partition: p.offset for p in places})

    def incremental_unassign(self, places: list[TopicPartition]) -> None:
        self._called("unassign", [p.partition for p in places])

    def pause(self, places: list[TopicPartition]) -> None:
        self._called("pause", [p.partition for p in places])

    def resume(self, places: list[TopicPartition]) -> None:
        self._called("resume", [p.partition for p in places])

    def seek(self, place: TopicPartition) -> None:
        self._called("seek", place.offset)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self._called("commit", {p.partition: p.offset for p in offsets})

    def get_watermark_offsets(self, place: TopicPartition, *, cached: bool) -> tuple[int, int]:
        return 0, -1001

    def close(self) -> None:
        self._called("close")
        self.closed = True


class FakeFeed(MessageFeed):
    """Gives runs as the reader under test holds them, and notes which partitions it has."""

    def __init__(self, consumer: FakeConsumer) -> None:
        super().__init__(consumer)
        self.placed: set[int] = set()

    def first(self, wait_s: float) -> list[Run]:
        return [(partition, held(run)) for partition, run in super().first(wait_s)]

    def fill(self, wait_s: float) -> list[Run]:
        return [(partition, held(run)) for partition, run in super().fill(wait_s)]

    def place(self, partitions: Iterable[int]) -> None:
        self.placed |= set(partitions)

    def leave(self, partitions: Iterable[int]) -> None:
        self.placed -= set(partitions)


class Lane:
    """A reader with everything it talks to."""

    def __init__(self, **options: Any) -> None:
        self.consumer = FakeConsumer()
        self.spans: list[Span] = []
        self.errors: list[BaseException] = []
        self.starts: dict[int, int] = {}
        self.feed = FakeFeed(self.consumer)
        given = {"rows_max": 4, "linger_ms": 0, "idle_ms": 60_000, **options}
        self.reader = Reader(
            self.consumer,
            "test.clicks",
            locate=self._locate,
            hand=self.spans.append,
            failed=self.errors.append,
            left=lambda _: None,
            ends=lambda *_: None,
            feed=self.feed,
            **given,
        )
        self.reader.start()

    def _locate(self, seat: Seat) -> int:
        return self.starts.get(seat.partition, 0)

    def handed(self) -> list[list[int]]:
        return [span.offsets().tolist() for span in list(self.spans) if not span.idle]

    def offsets(self) -> list[int]:
        return [offset for span in self.handed() for offset in span]


@pytest.fixture
def lanes() -> Iterator[Callable[..., Lane]]:
    made: list[Lane] = []

    def make(**options: Any) -> Lane:
        made.append(Lane(**options))
        return made[-1]

    yield make
    for lane in made:
        for _ in lane.spans:
            lane.reader.done()
        lane.reader.stop()
        lane.reader.join(WAIT_S)
        assert not lane.reader.is_alive()
        assert lane.consumer.users <= {lane.reader.ident}, "only the reader touches the consumer"


def test_records_are_handed_over_in_order_and_say_where_they_begin(
    lanes: Callable[..., Lane],
) -> None:
    lane = lanes()
    lane.starts[0] = 3
    lane.consumer.assign(0)
    lane.consumer.events.extend(map(message, range(3, 6)))
    until(lambda: lane.offsets() == [3, 4, 5])
    lane.reader.done()
    lane.consumer.events.append(message(9))
    until(lambda: lane.offsets() == [3, 4, 5, 9])
    begins = [span.begins for span in lane.spans]
    ends = [span.next_offset for span in lane.spans]
    assert begins == [3, *ends[:-1]]
    assert lane.consumer.named("assign") == [{0: 3}]


@pytest.mark.parametrize("nothing", [None, b""])
def test_a_record_without_content_is_a_record(
    lanes: Callable[..., Lane], nothing: bytes | None
) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    empty = Message(topic="test.clicks", partition=0, offset=0, value=nothing, timestamp=(2, 1))
    lane.consumer.events.append(empty)
    until(lambda: lane.offsets() == [0])


def test_a_busy_pump_gets_full_spans(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.append(message(0))
    until(lambda: lane.handed() == [[0]])
    lane.consumer.events.extend(map(message, range(1, 8)))
    until(lambda: lane.reader.queued_rows + len(lane.offsets()) == 8)
    assert all(len(span) == 4 for span in lane.handed()[1:])


def test_a_revoke_ends_the_seat_and_drops_what_is_queued(lanes: Callable[..., Lane]) -> None:
    lane = lanes(spans_max=1)
    lane.consumer.assign(0, 1)
    lane.consumer.events.append(message(0))
    until(lambda: lane.handed() == [[0]])
    lane.consumer.events.extend([message(1), message(2)])
    until(lambda: lane.reader.queued_rows == 2)
    (seat,) = {span.seat for span in lane.spans}
    lane.consumer.revoke(0)
    until(lambda: seat.revoked)
    assert lane.consumer.named("unassign") == [], "the write in hand is waited for"
    lane.reader.done()
    until(lambda: lane.consumer.named("unassign") == [[0]])
    assert lane.reader.queued_rows == 0
    assert [one.partition for one in lane.reader.seats] == [1]
    lane.consumer.assign(0)
    until(lambda: len(lane.reader.seats) == 2)
    assert seat not in lane.reader.seats
    assert lane.offsets() == [0]
    lane.spans.clear()


def test_lost_partitions_are_not_waited_for(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.append(message(0))
    until(lambda: lane.handed() == [[0]])
    lane.consumer.revoke(0, how="on_lost")
    until(lambda: lane.spans[0].seat.revoked)
    until(lambda: lane.reader.seats == [])


def test_a_restart_reads_again_under_the_fresh_seat(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.extend(map(message, range(3)))
    until(lambda: lane.offsets() == [0, 1, 2])
    old, fresh = lane.spans[0].seat, Seat("test.clicks", 0)
    lane.reader.restart(old, fresh, 1)
    until(lambda: lane.consumer.named("seek") == [1])
    assert old.revoked
    for _ in lane.spans:
        lane.reader.done()
    lane.spans.clear()
    lane.consumer.events.extend(map(message, range(1, 4)))
    until(lambda: lane.offsets() == [1, 2, 3])
    assert {span.seat for span in lane.spans} == {fresh}
    assert lane.spans[0].begins == 1


def test_a_restart_of_a_seat_that_is_gone_changes_nothing(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    until(lambda: lane.reader.seats)
    (old,) = lane.reader.seats
    lane.consumer.revoke(0)
    lane.consumer.assign(0)
    until(lambda: lane.reader.seats and lane.reader.seats[0] is not old)
    lane.reader.restart(old, Seat("test.clicks", 0), 7)
    lane.consumer.events.append(message(0))
    until(lambda: lane.offsets() == [0])
    assert lane.consumer.named("seek") == []


def test_stale_records_of_an_older_assignment_are_read_again(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.append(message(40))  # read for somebody who sat here before
    until(lambda: lane.consumer.named("seek") == [0])
    lane.consumer.events.extend([message(0), message(1)])
    until(lambda: lane.offsets() == [0, 1])


def test_a_pump_that_stands_still_pauses_the_partitions_and_polling_goes_on(
    lanes: Callable[..., Lane],
) -> None:
    lane, flow = lanes(spans_max=1, rows_max=2), ("pause", "resume")
    lane.consumer.assign(0)
    lane.consumer.events.extend(map(message, range(10)))
    until(lambda: lane.consumer.named("pause"))
    polled = lane.reader.polled_s
    until(lambda: lane.reader.polled_s > polled)
    until(lambda: bool(lane.spans))
    for _ in range(5):
        handed = len(lane.spans)
        lane.reader.done()
        if lane.offsets() != list(range(10)):
            until(lambda handed=handed: len(lane.spans) > handed)  # type: ignore[misc]
    until(lambda: lane.offsets() == list(range(10)))
    until(lambda: [name for name, _ in lane.consumer.calls if name in flow][-1] == "resume")
    lane.spans.clear()


def test_a_partition_that_was_paused_when_it_was_lost_is_read_when_it_comes_back(
    lanes: Callable[..., Lane],
) -> None:
    lane = lanes(spans_max=1, rows_max=2)
    lane.consumer.assign(0)
    lane.consumer.events.extend(map(message, range(10)))
    until(lambda: lane.consumer.named("pause"))
    lane.consumer.revoke(0, how="on_lost")
    until(lambda: not lane.reader.seats)
    lane.reader.done()
    lane.spans.clear()
    paused = len(lane.consumer.calls)
    lane.consumer.assign(0)
    until(lambda: lane.reader.seats)
    until(lambda: ("resume", [0]) in lane.consumer.calls[paused:])


def test_a_silent_partition_is_told_of_once(lanes: Callable[..., Lane]) -> None:
    lane = lanes(idle_ms=20)
    lane.consumer.assign(0)
    until(lambda: [span.idle for span in lane.spans] == [True])


def test_stored_positions_are_committed_at_the_end(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0, 1)
    until(lambda: lane.reader.joined)
    lane.reader.commit(0, 5)
    lane.reader.commit(1, 7)
    lane.reader.stop()
    lane.reader.join(WAIT_S)
    committed = {p: at for places in lane.consumer.named("commit") for p, at in places.items()}
    assert committed == {0: 5, 1: 7}
    assert lane.consumer.closed


def error(code: int) -> Message:
    return Message(topic="test.clicks", partition=0, error=KafkaError(code))


@pytest.mark.parametrize(
    "code",
    [KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._MAX_POLL_EXCEEDED],
)
def test_errors_that_pass_are_waited_for(lanes: Callable[..., Lane], code: int) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.extend([error(code), message(0)])
    until(lambda: lane.offsets() == [0])
    assert lane.errors == []


def test_an_error_that_does_not_pass_ends_the_reader(lanes: Callable[..., Lane]) -> None:
    lane = lanes()
    lane.consumer.assign(0)
    lane.consumer.events.append(error(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    until(lambda: lane.errors)
    assert isinstance(lane.errors[0], KafkaException)
    until(lambda: lane.consumer.closed)
