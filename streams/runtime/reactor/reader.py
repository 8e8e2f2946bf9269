"""The reader of a reactor: one thread, one group, the source topic and the retry topics.

It hands over records that are due, in spans of one partition, and never more than the engine has
room for. The head of a retry partition that is not due yet stays here with the partition paused:
it costs no other partition anything, and no seek. What waits here is dropped on a revoke.

The assignor is `range`: each worker has its share of *every* topic, and a partition's retries where
the partition is. (`cooperative-sticky` evens out only the total: one worker may end up with all of
the source.) Its price: a rebalance takes all partitions away for a moment.

Only this thread touches the consumer (see `streams.runtime.lane.reader`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import structlog
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from streams.runtime.lane.errors import passing
from streams.runtime.lane.pending import Pending
from streams.runtime.lane.span import Seat, Span

CONSUME_ROWS = 500
HELD_ROWS_MAX = 500
"""Records of a partition that wait here before it is paused."""
HANDED_ROWS_MAX = 2_000
"""Records handed over and not taken yet."""
SPAN_ROWS_MAX = 500
POLL_MS = 100
ENDS_EVERY_S = 1.0

ASSIGNOR = {"partition.assignment.strategy": "range"}

Place = tuple[str, int]

log = structlog.get_logger()


class Reader(threading.Thread):
    """Reads for one reactor.

    - `locate(seat, committed)` gives the offset to start at (`committed` is the group's, with its
      metadata); it may raise to stop the reader.
    - `due_ms(message)` tells when a record of a retry topic is due (Unix milliseconds).
    - `hand(span)` delivers and does not block; `taken(rows)` must be called for it later.
    - `leave(seats)` returns when all that may still be stored of these seats is; `drop(seats)` is
      told of seats that are lost already.
    - `failed(error)` is told what ended the thread; `ends(topic, partition, offset)` where a log
      ends.
    """

    def __init__(
        self,
        consumer: Consumer,
        source: str,
        retries: Sequence[str],
        *,
        locate: Callable[[Seat, TopicPartition], int],
        due_ms: Callable[[Message], int],
        hand: Callable[[Span], None],
        leave: Callable[[list[Seat]], None],
        drop: Callable[[list[Seat]], None],
        failed: Callable[[BaseException], None],
        ends: Callable[[str, int, int], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name=f"reader-{source}", daemon=True)
        self._consumer = consumer
        self._source, self._topics = source, [source, *retries]
        self._locate, self._due_ms, self._hand = locate, due_ms, hand
        self._leave, self._drop, self._failed, self._ends = leave, drop, failed, ends
        self._clock = clock
        self._pending: dict[Place, Pending] = {}
        self._paused: set[Place] = set()
        self._commits: dict[Seat, tuple[int, str]] = {}
        self._handed = 0
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._told_s = 0.0
        self.joined = False
        """Whether the group has answered at least once."""
        self.polled_s = time.monotonic()

    def taken(self, rows: int) -> None:
        """The engine has taken so many of the records handed over."""
        with self._lock:
            self._handed -= rows

    def commit(self, seat: Seat, offset: int, metadata: str) -> None:
        """Commit soon; the newest of a seat counts."""
        with self._lock:
            self._commits[seat] = (offset, metadata)

    def stop(self) -> None:
        """Leave the group and end the thread; what was asked to be committed is."""
        self._stop_event.set()

    def run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            while not self._stop_event.is_set():
                self._turn()
        except BaseException as error:
            self._failed(error)
        finally:
            self._commit(asynchronous=False)
            self._pending.clear()
            self._consumer.close()

    def _turn(self) -> None:
        self.polled_s = time.monotonic()
        self._commit(asynchronous=True)
        self._take(self._poll())
        for pending in list(self._pending.values()):
            self._hand_over(pending)
        self._pause_and_resume()
        if self.polled_s - self._told_s >= ENDS_EVERY_S:
            self._told_s = self.polled_s
            self._tell()

    def _poll(self) -> list[Message]:
        first = self._consumer.poll(self._wait_ms() / 1_000)
        # Not `if first`: a tombstone, an empty value and an error are all falsy.
        if first is None:
            return []
        more: list[Message] = self._consumer.consume(CONSUME_ROWS - 1, timeout=0)
        return [first, *more]

    def _wait_ms(self) -> float:
        """Until something that waits here may have become due, or be taken."""
        heads = [self._due(pending) for pending in self._pending.values() if pending.messages]
        if not heads:
            return POLL_MS
        return min(POLL_MS, max(5, min(heads) - self._clock() * 1_000))

    def _due(self, pending: Pending, at: int = 0) -> int:
        message = pending.messages[at]
        return 0 if pending.seat.topic == self._source else self._due_ms(message)

    def _take(self, messages: list[Message]) -> None:
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not passing(message.error())]
        now = time.monotonic()
        for place, run in groupby(messages, lambda one: (one.topic(), one.partition())):
            pending = self._pending.get(place)
            if pending is not None and not pending.take(list(run), now):
                self._consumer.seek(TopicPartition(*place, pending.begins))

    def _hand_over(self, pending: Pending) -> None:
        now_ms = self._clock() * 1_000
        room = min(SPAN_ROWS_MAX, HANDED_ROWS_MAX - self._handed, len(pending.messages))
        rows = 0
        while rows < room and self._due(pending, rows) <= now_ms:
            rows += 1
        if rows:
            with self._lock:
                self._handed += rows
            place = (pending.seat.topic, pending.seat.partition)
            self._pending[place] = self._pending.pop(place)  # others have their turn first now
            self._hand(pending.cut(rows, time.monotonic()))

    def _pause_and_resume(self) -> None:
        wanted = {place for place, one in self._pending.items() if self._holds_back(one)}
        for places, act in (
            (wanted - self._paused, self._consumer.pause),
            ((self._paused - wanted) & self._pending.keys(), self._consumer.resume),
        ):
            if places:
                act([TopicPartition(*place) for place in places])
        self._paused = wanted

    def _holds_back(self, pending: Pending) -> bool:
        """Whether a partition has enough here: its head is not due, or there is no room for it."""
        if not pending.messages:
            return False
        full = len(pending.messages) >= HELD_ROWS_MAX
        return full or self._due(pending) > self._clock() * 1_000

    def _tell(self) -> None:
        for place in self._pending:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
            if end >= 0:
                self._ends(*place, end)

    def _commit(self, *, asynchronous: bool) -> None:
        with self._lock:
            commits, self._commits = self._commits, {}
        places = [
            TopicPartition(seat.topic, seat.partition, offset, metadata)
            for seat, (offset, metadata) in commits.items()
            if not seat.revoked
        ]
        if places:
            with suppress(KafkaException):  # the next one says the same and more
                self._consumer.commit(offsets=places, asynchronous=asynchronous)

    # -- rebalance, called by librdkafka inside poll ------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        placed = []
        for committed in consumer.committed(partitions) if partitions else []:
            if committed.error is not None:
                raise KafkaException(committed.error)
            seat = Seat(committed.topic, committed.partition)
            offset = self._locate(seat, committed)
            self._pending[seat.topic, seat.partition] = Pending(seat, offset)
            placed.append(TopicPartition(seat.topic, seat.partition, offset))
        consumer.assign(placed)
        if placed:  # librdkafka remembers a pause beyond the assignment that it was made in
            consumer.resume(placed)
        log.info("assigned", topic=self._source, at=_offsets(placed))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seats = self._forget(partitions)
        self._leave(seats)
        self._commit(asynchronous=False)
        for seat in seats:
            seat.revoked = True
        consumer.unassign()
        log.info("revoked", topic=self._source, partitions=[seat.name for seat in seats])

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        seats = self._forget(partitions)
        for seat in seats:
            seat.revoked = True
        self._drop(seats)

    def _forget(self, partitions: list[TopicPartition]) -> list[Seat]:
        gone = [self._pending.pop((p.topic, p.partition), None) for p in partitions]
        self._paused &= self._pending.keys()
        return [pending.seat for pending in gone if pending is not None]


def _offsets(placed: list[TopicPartition]) -> Mapping[str, int]:
    return {f"{one.topic}/{one.partition}": one.offset for one in placed}
