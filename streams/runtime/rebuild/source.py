"""Reads the log for a rebuild: every partition from its own offset up to a moving target."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from itertools import groupby

from confluent_kafka import Consumer, Message, TopicPartition

from streams.runtime.lane.garbage import spare_records
from streams.runtime.lane.span import Seat, Span

CONSUME_ROWS = 500
WAIT_S = 0.05
SPANS_MAX = 3


class Source(threading.Thread):
    """Spans of assigned partitions, read ahead in a thread of its own.

    Only this thread touches the consumer. Nothing at or beyond a partition's target is handed
    out; what was read beyond it waits here, and the partition is paused meanwhile.
    """

    def __init__(
        self,
        consumer: Consumer,
        starts: Mapping[Seat, int],
        targets: Mapping[int, int],
        rows_max: int,
    ) -> None:
        super().__init__(name="rebuild-source", daemon=True)
        self._consumer = consumer
        self._seats = {seat.partition: seat for seat in starts}
        self._topic = next(iter(starts)).topic
        self._targets = dict(targets)
        self._rows_max = rows_max
        self._held: dict[int, list[Message]] = {partition: [] for partition in self._seats}
        self._paused: set[int] = set()
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self.spans: queue.Queue[Span] = queue.Queue(SPANS_MAX)
        places = [TopicPartition(self._topic, seat.partition, at) for seat, at in starts.items()]
        consumer.assign(places)

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
        messages = self._consumer.consume(CONSUME_ROWS, timeout=WAIT_S)
        for message in messages:
            if message.error() is not None and not message.error().retriable():
                raise RuntimeError(f"{self._topic}/{message.partition()}: {message.error()}")
        good = (message for message in messages if message.error() is None)
        for partition, run in groupby(good, Message.partition):
            self._held[partition].extend(run)
        drained = len(messages) < CONSUME_ROWS
        for partition, held in self._held.items():
            self._give(partition, held, drained=drained)

    def _give(self, partition: int, held: list[Message], *, drained: bool) -> None:
        target = self._targets.get(partition, 0)
        beyond = bool(held) and held[-1].offset() >= target
        if beyond != (partition in self._paused):
            place = [TopicPartition(self._topic, partition)]
            (self._consumer.pause if beyond else self._consumer.resume)(place)
            (self._paused.add if beyond else self._paused.discard)(partition)
        ready = sum(message.offset() < target for message in held) if beyond else len(held)
        if ready and (drained or beyond or ready >= self._rows_max):
            self._put(Span(self._seats[partition], held[:ready]))
            del held[:ready]

    def _put(self, span: Span) -> None:
        while not self._ended.is_set():
            try:
                self.spans.put(span, timeout=WAIT_S)
            except queue.Full:
                time.sleep(0)
            else:
                return
