"""The fast way of spans into a rebuilt version: decode, fold and write go on at the same time.

    source      decoder        caller                writer
    spans ───▶  columns ───▶   fold, ahead    ───▶   fenced write ───▶ the seat's memory

What is stored is what the pump would store, in its order. The fold runs ahead of the store, on a
memory of its own; every write expects the position that the one before it leaves, so none can land
beyond one that failed, and none that comes after a failed one is even sent. A store that wants few
large writes (`Projection.linger_ms`) gets several folds as one; the fold keeps its small spans,
which stay in the processor's caches.

Whatever goes wrong (a record that cannot be read or folded, a refusal, another writer) ends the
haste: what is in flight is waited for, what came behind the trouble is forgotten, and the same
spans go through the pump one after the other, which has an answer to each kind of it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import polars as pl

from streams.runtime.avro import Decoded
from streams.runtime.decoding import Decodes
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.bounds import check_topic
from streams.runtime.lane.patience import Patience, Stopped
from streams.runtime.lane.pump import LOOK_S, Pump
from streams.runtime.lane.reading import Reading, read
from streams.runtime.lane.span import Seat, Span
from streams.runtime.lane.store import Store
from streams.runtime.metrics import AgentMetrics
from streams.runtime.projection import Projection
from streams.runtime.sink import Sink, Write
from streams.runtime.step import Memory, Step, advance, join

DECODES_AHEAD = 2
"""Spans that are being decoded, or are, while the one before them is folded."""
FLIGHTS_MAX = 2
"""Writes handed to the writer and not known to be durable."""
JOINED_ROWS = 250_000
"""Records whose writes are joined for a store that wants few large ones."""
HELD_ROWS = 2 * JOINED_ROWS
"""Folded records that may wait for such a write, all partitions together."""

T = TypeVar("T")


class _NotSent(RuntimeError):
    """A write before it failed."""


@dataclass
class _Flight:
    """Folded spans of one seat, as one write, and the memory once that is durable."""

    seat: Seat
    memory: Memory
    spans: list[Span]
    write: Write | None
    rows: int = 0
    stale: Counter[str] = field(default_factory=Counter)
    decode_s: float = 0.0
    fold_s: float = 0.0
    write_s: float = 0.0

    def add(self, span: Span, reading: Reading, step: Step, decode_s: float, fold_s: float) -> None:
        """One more span and what came of it."""
        self.spans.append(span)
        if step.write is not None:
            self.stale.update(reading.stale_since(step.write.expected))
            self.write = step.write if self.write is None else join(self.write, step.write)
        self.memory = step.memory
        self.rows += len(span)
        self.decode_s += decode_s
        self.fold_s += fold_s


@dataclass
class Pipeline:
    """Takes spans from one thread; `finish` returns when all that was taken is durable.

    Only while nothing is in flight does a seat's memory tell how far it is folded.
    """

    projection: Projection
    sink: Sink
    decoder: Decodes
    pump: Pump
    metrics: AgentMetrics
    bounds: Callable[[Seat], LogBounds]
    version: int
    stopping: threading.Event
    _decoding: deque[tuple[Span, Future[Decoded] | None]] = field(default_factory=deque)
    _folded: dict[Seat, _Flight] = field(default_factory=dict)
    _flights: deque[tuple[_Flight, Future[None]]] = field(default_factory=deque)
    _ahead: dict[Seat, Memory] = field(default_factory=dict)
    _broken: set[Seat] = field(default_factory=set)
    _looked_s: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self._patience = Patience(self.projection.name, self.metrics, self.stopping)
        self._store = Store(self.projection, self.sink, self._patience, self.version)
        self._decoder = ThreadPoolExecutor(1, "rebuild-decoder")
        self._writer = ThreadPoolExecutor(1, "rebuild-writer")
        self._joined_rows = JOINED_ROWS if self.projection.linger_ms else 1

    @property
    def busy(self) -> bool:
        """Whether anything that was taken is not durable yet."""
        return bool(self._decoding or self._folded or self._flights)

    def ask(self, question: Callable[[], T]) -> Future[T]:
        """Ask the store between two writes: a sink is used by one thread at a time."""
        return self._writer.submit(question)

    def reaches(self, targets: Mapping[int, int]) -> bool:
        """Whether all spans up to these offsets, by partition, were taken."""
        at = {seat.partition: memory.now.offset for seat, memory in self._ahead.items()}
        at |= {span.seat.partition: span.next_offset for span, _ in self._decoding}
        return all(at.get(partition, 0) >= target for partition, target in targets.items())

    def take(self, span: Span) -> None:
        """Take the next span of its seat. Raises what ends a rebuild: `Stopped`, `LogMismatch`,
        `FoldBroken`, another writer; never for a single record, or for what passes.
        """
        if self.stopping.is_set():
            raise Stopped
        # A derived topic's records are admitted before they are decoded.
        early = not self.projection.topic.derived_from
        decoded = self._decoder.submit(self.decoder.decode, span.values()) if early else None
        self._decoding.append((span, decoded))
        if len(self._decoding) > DECODES_AHEAD:
            self._fold(*self._decoding.popleft())

    def finish(self) -> None:
        """Return when all that was taken is durable. Raises as `take` does."""
        while self._decoding:
            self._fold(*self._decoding.popleft())
        self._land_all()

    def close(self) -> None:
        """End the threads; what is in flight is let go."""
        self._decoder.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True, cancel_futures=True)

    # -- folding ------------------------------------------------------------------------------

    def _fold(self, span: Span, decoded: Future[Decoded] | None) -> None:
        seat = span.seat
        memory = self._ahead.get(seat, seat.memory)
        self._look(seat, memory)
        began = time.perf_counter()
        try:
            decode = self.decoder.decode if decoded is None else lambda _: decoded.result()
            reading = read(self.projection.topic, span, decode, memory.now)
            folding = time.perf_counter()
            step = advance(self.projection, memory, reading.batch, reading.refused)
        except (Exception, pl.exceptions.PanicException):
            self._land_all()
            self._slowly(span)
            return
        flight = self._folded.setdefault(seat, _Flight(seat, memory, [], None))
        flight.add(span, reading, step, folding - began, time.perf_counter() - folding)
        self._ahead[seat] = step.memory
        if flight.rows >= self._joined_rows:
            self._send(seat)
        elif sum(one.rows for one in self._folded.values()) > HELD_ROWS:
            self._send(max(self._folded, key=lambda one: self._folded[one].rows))

    def _look(self, seat: Seat, memory: Memory) -> None:
        """As the pump does: a topic that was made again must not be read on."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            found = self._patience(seat, lambda: self.bounds(seat))
            check_topic(self.projection.name, seat, memory.position, found)
            self._looked_s = now_s

    # -- writing ------------------------------------------------------------------------------

    def _send(self, seat: Seat) -> None:
        """Hand what is folded of a seat to the writer; waits while enough is in flight."""
        flight = self._folded.pop(seat)
        self._flights.append((flight, self._writer.submit(self._write, flight)))
        while len(self._flights) > FLIGHTS_MAX or (self._flights and self._flights[0][1].done()):
            if not self._landed(*self._flights.popleft()):
                return

    def _write(self, flight: _Flight) -> None:
        """In the writer's thread."""
        if flight.seat in self._broken:
            raise _NotSent
        began = time.perf_counter()
        try:
            if flight.write is not None:
                self._store.write(flight.seat, flight.write)
        except BaseException:
            self._broken.add(flight.seat)
            raise
        flight.write_s = time.perf_counter() - began

    def _landed(self, flight: _Flight, written: Future[None]) -> bool:
        """Wait for a write; False when it failed, and all in flight was seen to its end."""
        if written.exception() is not None:
            self._recover(flight)
            return False
        flight.seat.memory = flight.memory
        self._tell(flight)
        return True

    def _land_all(self) -> None:
        """Wait until all that is folded is durable."""
        for seat in list(self._folded):
            if seat in self._folded:
                self._send(seat)
        while self._flights:
            self._landed(*self._flights.popleft())

    def _recover(self, failed: _Flight) -> None:
        """Let the others land; then carry the failed one, and all behind it, through the pump."""
        left = {failed.seat: list(failed.spans)}
        while self._flights:
            flight, written = self._flights.popleft()
            if written.exception() is None:
                flight.seat.memory = flight.memory
                self._tell(flight)
            else:
                left.setdefault(flight.seat, []).extend(flight.spans)
        for seat in left:
            if seat in self._folded:
                left[seat] += self._folded.pop(seat).spans
        self._broken.clear()
        for spans in left.values():
            for span in spans:
                self._slowly(span)

    def _slowly(self, span: Span) -> None:
        """Through the pump, while nothing of the seat is in flight."""
        self.pump.process(span)
        if span.seat.revoked:
            raise Stopped
        self._ahead[span.seat] = span.seat.memory

    def _tell(self, flight: _Flight) -> None:
        """Tell the world about a write that is durable."""
        if flight.write is None:
            return
        position, expected = flight.write.position, flight.write.expected
        self.metrics.observe_batch(
            flight.rows, decode_s=flight.decode_s, fold_s=flight.fold_s, write_s=flight.write_s
        )
        self.metrics.counted(expected.counts if expected else {}, position.counts)
        for reason, rows in flight.stale.items():
            self.metrics.stale(reason, rows)
        self.metrics.progress(
            flight.seat.partition,
            position.next_offset,
            watermark_ms=position.watermark_ms,
            appended_ms=flight.spans[-1].last_append_ms,
        )
