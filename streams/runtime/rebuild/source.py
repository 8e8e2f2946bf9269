"""Reads the log for a rebuild: every partition from its own offset up to a moving target."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from streams.runtime.lane.feed import Feed
from streams.runtime.lane.garbage import spare_records
from streams.runtime.lane.pending import Pending
from streams.runtime.lane.span import Seat, Span, before, offset_of

WAIT_S = 0.05
SPANS_MAX = 3


class Source(threading.Thread):
    """Spans of assigned partitions, read ahead in a thread of its own.

    Only this thread touches the consumer and its feed. Nothing at or beyond a partition's target
    is handed out; what was read beyond it waits here, and the partition is paused meanwhile.
    """

    def __init__(
        self,
        reading: tuple[Consumer, Feed],
        starts: Mapping[Seat, int],
        targets: Mapping[int, int],
        rows_max: int,
    ) -> None:
        super().__init__(name="rebuild-source", daemon=True)
        self._consumer, self._feed = reading
        self._topic = next(iter(starts)).topic
        self._targets = dict(targets)
        self._rows_max = rows_max
        self._pending = {seat.partition: Pending(seat, at) for seat, at in starts.items()}
        self._paused: set[int] = set()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self.spans: queue.Queue[Span] = queue.Queue(SPANS_MAX)
        self._feed.place(self._pending)
        places = [TopicPartition(self._topic, seat.partition, at) for seat, at in starts.items()]
        self._consumer.assign(places)

    def aim(self, targets: Mapping[int, int]) -> None:
        """Move the targets forward."""
        self._targets = dict(targets)

    def next(self, timeout_s: float) -> Span | None:
        """The next span, or None when there is none within the time. Raises what ended the
        thread.
        """
        try:
            return self.spans.get(timeout=timeout_s)
        except queue.Empty:
            if self._error is not None:
                raise self._error from None
            return None

    def stop(self) -> None:
        """End the thread and close the consumer."""
        self._ended.set()
        self.join(10)

    def run(self) -> None:
        spare_records()
        try:
            while not self._ended.is_set():
                self._turn()
        except BaseException as error:  # handed to `next`
            self._error = error
        finally:
            self._consumer.close()

    def _turn(self) -> None:
        now = time.monotonic()
        for partition, run in self._feed.fill(WAIT_S):
            pending = self._pending[partition]
            if not pending.take(run, now):
                self._consumer.seek(TopicPartition(self._topic, partition, pending.begins))
        drained = self._feed.drained
        for partition, pending in self._pending.items():
            self._give(partition, pending, drained=drained)

    def _give(self, partition: int, pending: Pending, *, drained: bool) -> None:
        rows, target = pending.messages, self._targets.get(partition, 0)
        beyond = bool(rows) and offset_of(rows, -1) >= target
        if beyond != (partition in self._paused):
            place = [TopicPartition(self._topic, partition)]
            (self._consumer.pause if beyond else self._consumer.resume)(place)
            (self._paused.add if beyond else self._paused.discard)(partition)
        ready = before(rows, target) if beyond else len(rows)
        while ready >= self._rows_max or (ready and (drained or beyond)):
            span = pending.cut(min(ready, self._rows_max), time.monotonic())
            ready -= len(span)
            self._put(span)

    def _put(self, span: Span) -> None:
        while not self._ended.is_set():
            try:
                self.spans.put(span, timeout=WAIT_S)
            except queue.Full:
                time.sleep(0)
            else:
                return
