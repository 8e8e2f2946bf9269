"""The reader: one thread, one consumer group, spans of one partition at a time.

How much it hands over adapts by itself. While the pump is idle every record goes out at once
(latency); while the pump is busy records pile up per partition, up to `rows_max` (throughput).
When all seats together hold more than the bound, partitions are paused and polling goes on, so
that a slow store never costs the group membership.

Only this thread touches the consumer: confluent-kafka guards it with a lock that a polling thread
hardly ever gives away, so that a commit from another thread may wait for ever.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import structlog
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.runtime.lane.feed import Feed, MessageFeed, Run
from streams.runtime.lane.garbage import spare_records
from streams.runtime.lane.pending import Pending
from streams.runtime.lane.span import Seat, Span

POLL_MS = 100
IDLE_POLL_MS = 250
"""How long a read waits while nothing is here: a record ends it at once, stopping does not."""
STALL_MS = 1_000
"""How long the reader may wait for the pump before it pauses partitions and polls on."""
FILL_MS = 50
"""How long a span may fill while the log has more at hand."""
TELL_S = 1.0
REVOKE_WAIT_MS = 3_000
"""How long a revoke waits for the write in flight; the fence covers what takes longer."""

log = structlog.get_logger()


class Reader(threading.Thread):
    """Reads a topic for one agent.

    - `locate(partition)` gives the offset to start at, and may raise to stop the reader.
    - `hand(span)` delivers a span and does not block; `done()` must be called once the pump
      has finished with it.
    - `feed` reads the consumer's records (None: as messages).
    - `failed(error)` is told what ended the thread, if anything did; `left(partitions)` that
      partitions were taken away; `ends(partition, offset)` where a log ends.
    """

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        *,
        locate: Callable[[Seat], int],
        hand: Callable[[Span], None],
        failed: Callable[[BaseException], None],
        left: Callable[[list[int]], None],
        ends: Callable[[int, int], None],
        rows_max: int,
        linger_ms: int,
        idle_ms: int,
        spans_max: int = 5,
        feed: Feed | None = None,
    ) -> None:
        super().__init__(name=f"reader-{topic}", daemon=True)
        self._consumer = consumer
        self._feed = feed or MessageFeed(consumer)
        self._topic = topic
        self._locate = locate
        self._hand = hand
        self._failed = failed
        self._left = left
        self._ends = ends
        self._commits: dict[int, tuple[int, str]] = {}
        self._told_s = 0.0
        self._rows_max = rows_max
        self._linger_s = linger_ms / 1000
        self._idle_s = idle_ms / 1000
        self._slots = threading.Semaphore(spans_max)
        self._out = 0
        self._lock = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._seeks: deque[tuple[Seat, Seat, int]] = deque()
        self._stop_event = threading.Event()
        self._paused = False
        self.joined = False
        """Whether the group has answered at least once."""
        self.polled_s = time.monotonic()

    def done(self) -> None:
        """The pump has finished with one span."""
        with self._lock:
            self._out -= 1
        self._slots.release()

    def abandon(self) -> None:
        """The pump takes no more: what was handed over and not begun is not waited for."""
        with self._lock:
            self._out = 0

    def restart(self, seat: Seat, fresh: Seat, offset: int) -> None:
        """Read the partition of a seat again from `offset`, under the seat `fresh`."""
        seat.revoked = True
        self._seeks.append((seat, fresh, offset))

    def commit(self, partition: int, offset: int, metadata: str = "") -> None:
        """Publish a stored position as the group's offset, soon."""
        self._commits[partition] = (offset, metadata)

    def stop(self) -> None:
        """Stop reading; queued records are dropped, the group is left, the thread ends."""
        self._stop_event.set()

    @property
    def seats(self) -> list[Seat]:
        return [pending.seat for pending in list(self._pending.values())]

    @property
    def queued_rows(self) -> int:
        """Records read and not handed over."""
        return sum(len(pending.messages) for pending in list(self._pending.values()))

    def run(self) -> None:
        spare_records()
        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            while not self._stop_event.is_set():
                self._turn()
        except BaseException as error:
            self._failed(error)
        finally:
            for pending in self._pending.values():
                pending.seat.revoked = True
            self._finish()

    def _finish(self) -> None:
        """Let the span in hand be stored, publish that, leave the group."""
        deadline = time.monotonic() + REVOKE_WAIT_MS / 1000
        while self._out > 0 and time.monotonic() < deadline:
            time.sleep(0.005)
        self._commit_stored(asynchronous=False)
        self._consumer.close()

    def _turn(self) -> None:
        self.polled_s = time.monotonic()
        self._take(self._poll())
        while self._seeks:
            self._seek(*self._seeks.popleft())
        self._hand_over()
        if self.polled_s - self._told_s >= TELL_S:
            self._tell()

    def _tell(self) -> None:
        """Commit what is stored and report where the logs end; for lag tools only."""
        self._told_s = self.polled_s
        self._commit_stored(asynchronous=True)
        for partition in self._pending:
            place = TopicPartition(self._topic, partition)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            if end >= 0:
                self._ends(partition, end)

    def _commit_stored(self, *, asynchronous: bool) -> None:
        places = []
        while self._commits:  # the pump may be adding to it
            partition, (offset, metadata) = self._commits.popitem()
            places.append(TopicPartition(self._topic, partition, offset, metadata))
        if places:
            with suppress(KafkaException):  # the truth is in the sink
                self._consumer.commit(offsets=places, asynchronous=asynchronous)

    def _poll(self) -> list[Run]:
        if self._paused:
            return self._feed.first(POLL_MS / 1000)
        if not self._feed.drained or (self.queued_rows and self._out):
            # Records pile up anyway: fill whole reads instead of taking what is there.
            return self._feed.fill(0.005)
        return self._feed.first(self._wait_s())

    def _wait_s(self) -> float:
        if not self.queued_rows:
            return IDLE_POLL_MS / 1000
        return 0.001 if not self._linger_s else min(POLL_MS / 1000, self._linger_s / 4)

    def _take(self, runs: list[Run]) -> None:
        now = time.monotonic()
        for partition, run in runs:
            pending = self._pending.get(partition)
            if pending is None:
                continue
            if not pending.take(run, now):
                self._consumer.seek(TopicPartition(self._topic, partition, pending.begins))

    def _hand_over(self) -> None:
        now = time.monotonic()
        for pending in sorted(self._pending.values(), key=lambda p: -len(p.messages)):
            while len(pending.messages) >= self._rows_max and not self._stop_event.is_set():
                self._deliver(pending, now)
            rows = len(pending.messages)
            if rows and self._due(pending, now):
                self._deliver(pending, now)
            elif not rows and pending.forgotten(now, self._idle_s):
                pending.attended = now
                self._give(Span(pending.seat, idle=True))
        self._press()

    def _due(self, pending: Pending, now: float) -> bool:
        """Whether a part-filled span goes out: the pump idles and nothing more is at hand."""
        if self._linger_s:
            return now - max(pending.since, pending.handed) >= self._linger_s
        caught_up = self._feed.drained or now - pending.since >= FILL_MS / 1000
        return self._out == 0 and caught_up

    def _deliver(self, pending: Pending, now: float) -> None:
        self._give(pending.cut(self._rows_max, now))

    def _give(self, span: Span) -> None:
        """Hand over one span; waits for a free slot, polling (paused) when that takes long."""
        if not self._slots.acquire(timeout=STALL_MS / 1000):
            self._pause(True)
            while not self._slots.acquire(timeout=POLL_MS / 1000):
                if self._stop_event.is_set():
                    return
                self._take(self._poll())
                self.polled_s = time.monotonic()
            self._pause(False)
        if span.seat.revoked:
            self._slots.release()
            return
        with self._lock:
            self._out += 1
        self._hand(span)

    def _press(self) -> None:
        """Bound what waits here: pause while more than two full spans a seat are queued."""
        bound = 2 * self._rows_max * max(1, len(self._pending))
        if not self._paused and self.queued_rows > bound:
            self._pause(True)
        elif self._paused and self.queued_rows <= bound // 2:
            self._pause(False)

    def _pause(self, pause: bool) -> None:
        assigned = [TopicPartition(self._topic, partition) for partition in self._pending]
        (self._consumer.pause if pause else self._consumer.resume)(assigned)
        self._paused = pause

    def _seek(self, seat: Seat, fresh: Seat, offset: int) -> None:
        pending = self._pending.get(seat.partition)
        if pending is None or pending.seat is not seat:
            return  # revoked meanwhile: the next owner starts from the stored position
        self._pending[seat.partition] = Pending(fresh, offset)
        self._consumer.seek(TopicPartition(self._topic, seat.partition, offset))

    # -- rebalance, called by librdkafka inside poll ------------------------------------------

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.joined = True
        placed = []
        for one in partitions:
            seat = Seat(self._topic, one.partition)
            offset = self._locate(seat)
            self._pending[one.partition] = Pending(seat, offset)
            placed.append(TopicPartition(self._topic, one.partition, offset))
        self._feed.place(place.partition for place in placed)
        consumer.incremental_assign(placed)
        if placed:  # librdkafka remembers a pause beyond the assignment that it was made in
            (consumer.pause if self._paused else consumer.resume)(placed)
        log.info("assigned", topic=self._topic, at={p.partition: p.offset for p in placed})

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave(partitions)
        deadline = time.monotonic() + REVOKE_WAIT_MS / 1000
        while self._out > 0 and time.monotonic() < deadline and not self._stop_event.is_set():
            time.sleep(0.005)
        consumer.incremental_unassign([TopicPartition(p.topic, p.partition) for p in partitions])

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._leave(partitions)

    def _leave(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            pending = self._pending.pop(one.partition, None)
            if pending is not None:
                pending.seat.revoked = True
        self._feed.leave(one.partition for one in partitions)
        self._left([one.partition for one in partitions])
        log.info("revoked", topic=self._topic, partitions=[p.partition for p in partitions])
