"""The pump: one span in, one fenced write out. Its order of steps is the guarantee.

1. decode (a registry that is down is waited for; a record that is wrong is set aside);
2. fold (pure; a record that makes it raise is found by halving and set aside);
3. letters to the dead letter and late topics, until they are on the log;
4. the fenced write, until it is durable or refused;
5. only then: memory moves on, the group's offset is committed.

A crash between any two steps repeats the span, with other borders perhaps, and changes nothing.
A span that is not finished, for whatever reason, ends its seat: the spans queued behind it would
else be stored behind a hole.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import polars as pl
import structlog
from opentelemetry.trace import Span as TraceSpan
from opentelemetry.trace import TracerProvider

from streams.runtime.dead_letters import Outbox
from streams.runtime.decider.filter import BrokenChain
from streams.runtime.decoding import Decodes
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.bounds import LogMismatch, check_topic
from streams.runtime.lane.journal import ALONE, Journal, pieces
from streams.runtime.lane.letters import letters_of
from streams.runtime.lane.patience import Patience, Stopped
from streams.runtime.lane.reading import Reading, read, without
from streams.runtime.lane.span import Seat, Span
from streams.runtime.lane.store import Store, WriteSide
from streams.runtime.metrics import AgentMetrics
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.sink import FenceRefused, SinkRejected
from streams.runtime.step import Memory, Step, advance, flush
from streams.runtime.tracing import LOOKED_MAX, batch_span

LOOK_S = 1.0
"""How often a lane asks whether its topic is still the same one. After a topic was deleted and made
again a consumer may read on, at offsets that mean other records now, or hear nothing any more.
"""
FAILURES_MAX = 100
"""Records in a row that may fail before the fold itself is taken to be at fault."""

log = structlog.get_logger()


class FoldBroken(RuntimeError):
    """The fold fails on one record after the other: the fault is in it, not in them."""


class SpanLost(RuntimeError):
    """A span does not begin where the one before it ended: a fault of the reader. Nothing of it
    is stored; a restart begins at the stored position.
    """


@dataclass(frozen=True)
class Folded:
    """What came of a span on one memory. Nothing of it is stored yet."""

    span: Span
    base: Memory
    reading: Reading
    step: Step
    began_ns: int = 0
    decode_s: float = 0.0
    fold_s: float = 0.0


class Pump:
    """Carries the spans of one agent into its sink. One thread at a time may call `process`.

    - `bounds(seat)` asks the broker; `restart(seat, fresh, offset)` makes the reader start over
      there; `commit(seat, position)` publishes what is stored (for lag tools: the truth is in the
      sink).
    - `version` None follows the live version; a rebuild passes the one it builds.
    - `tracing` is where the span of each batch goes (None: where the process traces, if it does).
    """

    def __init__(
        self,
        projection: Projection,
        sink: WriteSide,
        decoder: Decodes,
        outbox: Outbox,
        metrics: AgentMetrics,
        *,
        bounds: Callable[[Seat], LogBounds],
        restart: Callable[[Seat, Seat, int], None],
        commit: Callable[[Seat, Position], None],
        stopping: threading.Event,
        journal: Journal | None = None,
        version: int | None = None,
        tracing: TracerProvider | None = None,
    ) -> None:
        self.name = projection.name
        self._projection = projection
        self._decoder = decoder
        self._outbox = outbox
        self._metrics = metrics
        self._bounds = bounds
        self._restart = restart
        self._commit = commit
        self._stopping = stopping
        self._journal = journal
        self._tracing = tracing
        self._failures = 0
        self._looked_s = time.monotonic()
        self.patience = Patience(self.name, metrics, stopping)
        self._sink = Store(projection, sink, self.patience, version)
        self.silent_letters = version is not None

    def locate(self, seat: Seat) -> int:
        """Load position and state for a new seat; return the offset to read from.

        Waits while the store or the broker is down or the version is sealed. Raises `LogMismatch`,
        `UnknownTopic`, and `Stopped`.
        """
        seat.memory, bounds = self._sink.load(seat, lambda: self._bounds(seat))
        memory: Memory = seat.memory
        self._metrics.assigned([seat.partition])
        self._metrics.log_end(seat.partition, bounds.end)
        self._report(seat, memory.position, None)
        return memory.now.offset

    # -- one span -----------------------------------------------------------------------------

    @property
    def careful(self) -> bool:
        """Whether spans go one by one now: some record may kill the process, or it stops."""
        return self._stopping.is_set() or (
            self._journal is not None and bool(self._journal.suspects)
        )

    def process(self, span: Span) -> None:
        """Fold and store a span. Returns quietly when its seat was revoked or must start over;
        after anything else than success the seat is revoked.
        """
        seat = span.seat
        if self._stopping.is_set():
            seat.revoked = True
        if seat.revoked:
            return
        try:
            try:
                if span.idle:
                    self._attend(seat)
                else:
                    self._carry(span)
            except FenceRefused as refused:
                self._metrics.fence_refused()
                log.warning("fence refused", agent=self.name, at=seat.name, why=str(refused))
                self._restart_from_store(seat)
        except Stopped:
            seat.revoked = True
        except BaseException:
            seat.revoked = True
            raise

    def _restart_from_store(self, seat: Seat) -> None:
        fresh = Seat(seat.topic, seat.partition)
        seat.revoked = True
        self._restart(seat, fresh, self.locate(fresh))

    def _carry(self, span: Span) -> None:
        """Fold and store: suspects in small pieces, everything else whole."""
        seat = span.seat
        expected = seat.memory.now.offset
        if span.begins is not None and span.begins != expected:
            raise SpanLost(f"{self.name} at {seat.name}: span at {span.begins}, not {expected}")
        self.look(seat)
        with self.traced(span):
            self._carry_pieces(span)

    def traced(self, span: Span, began_ns: int | None = None) -> AbstractContextManager[TraceSpan]:
        """The trace span of a batch, from now on or from a time before."""
        return batch_span(
            self.name,
            span.seat.topic,
            span.seat.partition,
            len(span),
            records=span.some_headers(LOOKED_MAX),
            began_ns=began_ns,
            provider=self._tracing,
        )

    def _carry_pieces(self, span: Span) -> None:
        suspects = [] if self._journal is None else self._journal.suspected(span)
        for piece, suspect in pieces(span, suspects):
            if suspect is not None and suspect.guilty:
                self._set_aside(piece, f"killed the worker {suspect.deaths} times", None)
            else:
                self._fold_and_store(piece, suspected=suspect is not None)
        if self._journal is not None:
            self._journal.passed(span, span.seat.memory.position.low_offset)

    def look(self, seat: Seat) -> None:
        """Now and then ask the broker; raise `LogMismatch` or `UnknownTopic` unless the topic is
        that of the position.
        """
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            bounds = self.patience(seat, lambda: self._bounds(seat))
            check_topic(self.name, seat, seat.memory.position, bounds)
            self._looked_s = now_s

    def _fold_and_store(self, span: Span, *, suspected: bool = False) -> None:
        """Fold and store; a record that fold or store cannot take is found by halving."""
        error = self._attempt(span, suspected=suspected)
        if isinstance(error, SinkRejected) and len(span) == 1:  # or does it refuse everything?
            self._sink.wait_for_writes(span.seat)
            error = self._attempt(span, suspected=suspected)
        if error is None:
            return
        if len(span) == 1:
            self._give_up_on(span, error)
            return
        for half in span.halves():
            self._fold_and_store(half, suspected=suspected)

    def _attempt(self, span: Span, *, suspected: bool) -> BaseException | None:
        """Fold and store; answers the error that is to be blamed on the records."""
        try:
            self._take(span, suspected=suspected)
        except (Stopped, FenceRefused, LogMismatch, FoldBroken, BrokenChain):
            raise
        except (Exception, pl.exceptions.PanicException) as error:
            return error
        return None

    def _take(self, span: Span, *, suspected: bool) -> None:
        folded = self.fold(span, span.seat.memory, suspected=suspected)
        began = time.perf_counter()
        self.store(folded)
        self.settle(folded, time.perf_counter() - began)

    def fold(self, span: Span, memory: Memory, *, suspected: bool = False) -> Folded:
        """Decode and fold a span on `memory`; nothing is stored. Raises what the fold raises."""
        began_ns, began = time.time_ns(), time.perf_counter()
        reading = self._read(span, memory, suspected=suspected)
        decoded = time.perf_counter()
        with self._noted(span, suspected=suspected):
            step = advance(self._projection, memory, reading.batch, reading.refused)
        fold_s = time.perf_counter() - decoded
        return Folded(span, memory, reading, step, began_ns, decoded - began, fold_s)

    def _read(self, span: Span, memory: Memory, *, suspected: bool) -> Reading:
        def decode() -> Reading:
            with self._noted(span, suspected=suspected):
                return read(self._projection.topic, span, self._decoder.decode, memory.now)

        return self.patience(span.seat, decode)

    @contextmanager
    def _noted(self, span: Span, *, suspected: bool) -> Iterator[None]:
        """What is done inside is blamed on the span, should the process die of it."""
        if self._journal is None:
            yield
            return
        with ALONE if suspected else nullcontext():
            self._journal.working_on(span)
            try:
                yield
            finally:
                self._journal.finished()

    # -- what is set aside --------------------------------------------------------------------

    def _give_up_on(self, span: Span, error: BaseException) -> None:
        """Set aside the one record that cannot be taken, unless it seems that none can be."""
        self._failures += 1
        if self._failures > FAILURES_MAX:
            raise FoldBroken(
                f"{self.name} failed on {self._failures} records in a row, the last at "
                f"{span.seat.name} offset {span.first_offset}; nothing more is set aside. Mend the "
                "fold and restart; redrive what is in the dead letter topic"
            ) from error
        reason = f"{type(error).__name__}: {error}"
        where = f"{span.seat.name}/{span.first_offset}"
        log.warning("record set aside", agent=self.name, at=where, error=reason[:1_000])
        self._set_aside(span, reason, error)

    def _set_aside(self, span: Span, reason: str, error: BaseException | None) -> None:
        """Quarantine the single record of a span and move the position past it."""
        memory: Memory = span.seat.memory
        reading = without(self._projection.topic, span, reason, memory.now)
        step = advance(self._projection, memory, reading.batch, reading.refused)
        folded = Folded(span, memory, reading, step)
        self.store(folded, error)
        self.settle(folded)

    def store(self, folded: Folded, error: BaseException | None = None) -> None:
        """Letters first, then the fenced write: in this order. Returns when it is durable; the
        seat's memory is still that from before.
        """
        if folded.step.write is not None:  # else a replay
            self._send(folded, error)
            self._sink.write(folded.span.seat, folded.step.write)

    def _send(self, folded: Folded, error: BaseException | None) -> None:
        span, outcome = folded.span, folded.step.outcome
        if outcome is None or self.silent_letters:
            return
        fresh = span.seat.memory.position.next_offset
        dead, late = letters_of(
            self._projection, span, folded.reading.dead, outcome, fresh=fresh, error=error
        )
        if dead or late:
            self.patience(span.seat, lambda: self._outbox.send([*dead, *late]))
            self._metrics.dead_letter("record", len(dead))
            self._metrics.late(len(late))

    def _attend(self, seat: Seat) -> None:
        """For an idle partition: show early what its open windows hold (never moving the
        position, C2), or notice a store that has lost the position meanwhile.
        """
        self.look(seat)
        write = flush(self._projection, seat.memory, seat.topic, seat.partition)
        if write is None:
            self._sink.look(seat)
        else:
            self._sink.write(seat, write)

    # -- what the world is told ---------------------------------------------------------------

    def settle(self, folded: Folded, write_s: float = 0.0) -> None:
        """What is durable becomes the seat's memory, and the world is told."""
        span, reading, write = folded.span, folded.reading, folded.step.write
        seat = span.seat
        seat.memory = folded.step.memory
        if reading.batch.height:
            self._failures = 0
        if write is None:
            return
        position = write.position
        self._commit(seat, position)
        self._metrics.observe_batch(
            len(span), decode_s=folded.decode_s, fold_s=folded.fold_s, write_s=write_s
        )
        self._metrics.observe_end_to_end(span.first_append_ms)
        expected = write.expected
        self._metrics.counted(expected.counts if expected else {}, position.counts)
        for reason, rows in reading.stale_since(expected).items():
            self._metrics.stale(reason, rows)
        self._report(seat, position, span.last_append_ms)

    def _report(self, seat: Seat, position: Position, appended_ms: int | None) -> None:
        self._metrics.progress(
            seat.partition,
            position.next_offset,
            watermark_ms=position.watermark_ms,
            appended_ms=appended_ms,
        )
