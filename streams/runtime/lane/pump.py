"""The pump: one span in, one fenced write out. Its order of steps is the guarantee.

1. decode (a registry that is down is waited for; a record that is wrong is set aside);
2. fold (pure; a record that makes it raise is found by halving and set aside);
3. letters to the dead letter and late topics, until they are on the log;
4. the fenced write, until it is durable or refused;
5. only then: memory moves on, the group's offset is committed.

A crash between any two steps repeats the span, with other borders perhaps, and changes nothing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
import structlog
from confluent_kafka import KafkaException

from streams.runtime.avro import Decoder, RegistryUnavailable
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.dead_letters import Letter, Outbox, dead_letter, late_letter
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.journal import Journal, Suspect
from streams.runtime.lane.span import Seat, Span
from streams.runtime.metrics import AgentMetrics
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.sink import FenceRefused, Sink, SinkRejected, SinkUnavailable, Write
from streams.runtime.step import Memory, Refused, Step, advance, flush, restore
from streams.runtime.watermark import skewed, stamp

BACKOFF_MS_FIRST = 50
BACKOFF_MS_MAX = 5_000
FAILURES_MAX = 100
"""Records in a row that may fail before the fold itself is taken to be at fault."""
ROW = "_row"

T = TypeVar("T")

log = structlog.get_logger()


class Stopped(Exception):
    """The worker stops, or the seat was revoked: drop what is in hand."""


class FoldBroken(RuntimeError):
    """The fold fails on one record after the other: the fault is in it, not in them."""


class LogMismatch(RuntimeError):
    """Stored position and log do not belong together; a person must decide. Says what to do."""


@dataclass(frozen=True)
class _Read:
    """A decoded span: the batch, and the records that are not in it."""

    batch: Batch
    dead: Sequence[tuple[int, str]] = ()
    tombstones: Sequence[int] = ()
    seconds: float = 0.0

    @property
    def refused(self) -> Refused:
        """The rows that do not reach the fold, by fate."""
        quarantined = [offset for offset, _ in self.dead]
        return Refused({Fate.QUARANTINED: quarantined, Fate.FILTERED: self.tombstones})


class Pump:
    """Carries the spans of one agent into its sink. One thread at a time may call `process`.

    - `bounds(seat)` asks the broker; `restart(seat, fresh, offset)` makes the reader start over at
      `offset` under the seat `fresh`;
      `commit(seat, offset)` publishes progress for lag tools (the truth is in the sink).
    - `version` None follows the live version; a rebuild passes the one it builds.
    """

    def __init__(
        self,
        projection: Projection,
        sink: Sink,
        decoder: Decoder,
        outbox: Outbox,
        metrics: AgentMetrics,
        *,
        bounds: Callable[[Seat], LogBounds],
        restart: Callable[[Seat, Seat, int], None],
        commit: Callable[[Seat, int], None],
        stopping: threading.Event,
        journal: Journal | None = None,
        version: int | None = None,
    ) -> None:
        self.name = projection.name
        self._projection = projection
        self._sink = sink
        self._sink_lock = threading.Lock()
        self._decoder = decoder
        self._outbox = outbox
        self._metrics = metrics
        self._bounds = bounds
        self._restart = restart
        self._commit = commit
        self._stopping = stopping
        self._journal = journal
        self._fixed_version = version
        self._version = version or 1
        self._failures = 0
        self.silent_letters = version is not None

    # -- where to start -----------------------------------------------------------------------

    def locate(self, seat: Seat) -> int:
        """Load position and state for a new seat; return the offset to read from.

        Waits while the store is down or the version is sealed. Raises `LogMismatch`.
        """
        bounds = self._bounds(seat)
        memory = self._patiently(seat, lambda: self._load(seat, bounds))
        seat.memory = memory
        self._metrics.assigned([seat.partition])
        self._metrics.log_end(seat.partition, bounds.end)
        self._report(seat, memory.position, None)
        return memory.now.offset

    def _load(self, seat: Seat, bounds: LogBounds) -> Memory:
        with self._sink_lock:
            if self._fixed_version is None:
                self._version = self._sink.live_version()
            self._sink.prepare(self._version)
            try:
                stored = self._sink.load(self._version, seat.topic, seat.partition)
            except FenceRefused as sealed:  # a rebuild is about to switch versions
                raise SinkRejected(str(sealed), transient=True) from sealed
            check_against_log(self.name, seat, stored, bounds)
            tables = {
                name: self._stored_rows(name, seat.partition) for name in self._projection.restores
            }
        return restore(self._projection, bounds.topic_id, stored, tables, begin=bounds.start)

    def _stored_rows(self, table: str, partition: int) -> pl.DataFrame:
        frames = list(self._sink.rows(self._version, table, partition))
        if frames:
            return pl.concat(frames)
        columns = self._projection.model.table(table).columns
        return pl.DataFrame(schema={**columns, "_partition": pl.Int32})

    # -- one span -----------------------------------------------------------------------------

    def process(self, span: Span) -> None:
        """Fold and store a span. Returns quietly when its seat was revoked or must start over."""
        seat = span.seat
        if seat.revoked:
            return
        with suppress(Stopped):
            try:
                if span.idle:
                    self._show_early(seat)
                else:
                    self._careful(span)
            except FenceRefused as refused:
                self._metrics.fence_refused()
                log.warning("fence refused", agent=self.name, at=seat.name, why=str(refused))
                self._restart_from_store(seat)

    def _restart_from_store(self, seat: Seat) -> None:
        fresh = Seat(seat.topic, seat.partition)
        seat.revoked = True
        self._restart(seat, fresh, self.locate(fresh))

    def _careful(self, span: Span) -> None:
        """Fold suspects record by record, everything else whole."""
        for piece, suspect in self._pieces(span):
            if suspect is not None and suspect.single:
                reason = "killed the worker twice"
                self._set_aside(piece, reason, None)
            else:
                self._fold_and_store(piece)
        if self._journal is not None:
            for suspect in list(self._journal.suspects):
                if (
                    suspect.overlaps(
                        span.seat.topic, span.seat.partition, span.first_offset, span.next_offset
                    )
                    and suspect.stop <= span.next_offset
                ):
                    self._journal.cleared(suspect)

    def _pieces(self, span: Span) -> Iterator[tuple[Span, Suspect | None]]:
        seat = span.seat
        suspects = (
            []
            if self._journal is None
            else [
                one
                for one in self._journal.suspects
                if one.overlaps(seat.topic, seat.partition, span.first_offset, span.next_offset)
            ]
        )
        if not suspects:
            yield span, None
            return
        for message in span.messages:
            at = message.offset()
            guilty = [s for s in suspects if s.first <= at < s.stop]
            single = next((s for s in guilty if s.single), None)
            yield Span(seat, [message]), single or next(iter(guilty), None)

    def _fold_and_store(self, span: Span) -> None:
        """Fold and store; a record that fold or store cannot take is found by halving."""
        try:
            read = self._read(span)
            began = time.perf_counter()
            with self._noted(span):
                step = advance(self._projection, span.seat.memory, read.batch, read.refused)
            folded = time.perf_counter()
            self._store(span, read, step, None)
        except (Stopped, FenceRefused, LogMismatch, FoldBroken, KafkaException):
            raise
        except Exception as error:
            if len(span) == 1:
                self._give_up_on(span, error)
                return
            for half in span.halves():
                self._fold_and_store(half)
        else:
            if read.batch.height:
                self._failures = 0
            self._settle(span, read, step, folded - began, time.perf_counter() - folded)

    def _give_up_on(self, span: Span, error: Exception) -> None:
        """Set aside the one record that the fold cannot take, unless it seems to take none."""
        self._failures += 1
        if self._failures > FAILURES_MAX:
            raise FoldBroken(
                f"{self.name} failed on {self._failures} records in a row, the last at "
                f"{span.seat.name} offset {span.first_offset}; nothing more is set aside. Mend the "
                "fold and restart; redrive what is in the dead letter topic"
            ) from error
        log.warning(
            "record set aside",
            agent=self.name,
            at=span.seat.name,
            offset=span.first_offset,
            error=f"{type(error).__name__}: {error}",
        )
        self._set_aside(span, f"{type(error).__name__}: {error}", error)

    def _read(self, span: Span) -> _Read:
        began = time.perf_counter()
        values = span.values()
        decoded = self._patiently(span.seat, lambda: self._decoder.decode(values))
        offsets = span.offsets()
        dead = [(int(offsets[one.row]), one.reason) for one in decoded.dead]
        frames, ahead = self._unskewed(span, dict(decoded.frames))
        dead += [(int(offsets[row]), "event time is ahead of the log") for row in ahead]
        memory: Memory = span.seat.memory
        placed = {name: _with_offsets(frame, offsets) for name, frame in frames.items()}
        event_time = self._projection.topic.event_time
        stamped, watermark_ms = stamp(
            placed,
            event_time,
            memory.now.watermark_ms,
            self._projection.topic.out_of_orderness_ms,
        )
        batch = Batch(
            self._projection.topic,
            span.seat.partition,
            span.first_offset,
            span.next_offset,
            stamped,
            watermark_ms,
        )
        tombstones = [int(offsets[row]) for row in decoded.tombstones]
        return _Read(batch, dead, tombstones, time.perf_counter() - began)

    def _unskewed(
        self, span: Span, frames: dict[str, pl.DataFrame]
    ) -> tuple[dict[str, pl.DataFrame], list[int]]:
        """Take out rows whose event time is ahead of their append time by more than allowed.

        Append times never fall inside a partition, so the first one clears a whole span.
        """
        topic = self._projection.topic
        if topic.event_time is None:
            return frames, []
        limit = span.first_append_ms + topic.future_skew_ms
        newest = [_newest_ms(frame, topic.event_time) for frame in frames.values()]
        if all(one <= limit for one in newest):
            return frames, []
        append_ms = span.append_ms()
        ahead: list[int] = []
        for name, frame in frames.items():
            rows = frame[ROW].to_numpy()
            event_ms = frame[topic.event_time].to_physical()
            mask = skewed(event_ms, pl.Series(append_ms[rows]), topic.future_skew_ms)
            ahead += rows[mask.to_numpy()].tolist()
            frames[name] = frame.filter(~mask)
        return {name: frame for name, frame in frames.items() if frame.height}, sorted(ahead)

    @contextmanager
    def _noted(self, span: Span) -> Iterator[None]:
        if self._journal is None:
            yield
            return
        seat = span.seat
        self._journal.working_on(seat.topic, seat.partition, span.first_offset, span.next_offset)
        try:
            yield
        finally:
            self._journal.finished()

    def _store(self, span: Span, read: _Read, step: Step, error: BaseException | None) -> None:
        """Letters first, then the fenced write, then the memory: in this order."""
        if step.write is not None and step.outcome is not None:  # else a replay
            self._send(span, self._letters(span, read.dead, step.outcome, error))
            self._write(span.seat, step.write)
        span.seat.memory = step.memory

    def _settle(self, span: Span, read: _Read, step: Step, fold_s: float, write_s: float) -> None:
        """Tell the world about a write that is durable."""
        if step.write is None:
            return
        seat, position = span.seat, step.write.position
        self._commit(seat, position.next_offset)
        self._metrics.observe_batch(
            len(span), decode_s=read.seconds, fold_s=fold_s, write_s=write_s
        )
        self._metrics.observe_end_to_end(span.first_append_ms)
        before = step.write.expected.counts if step.write.expected else {}
        for fate, rows in position.counts.items():
            if rows > before.get(fate, 0):
                self._metrics.count(fate, rows - before.get(fate, 0))
        self._report(seat, position, span.last_append_ms)

    def _report(self, seat: Seat, position: Position, appended_ms: int | None) -> None:
        self._metrics.progress(
            seat.partition,
            position.next_offset,
            watermark_ms=position.watermark_ms,
            appended_ms=appended_ms,
        )

    # -- what is set aside --------------------------------------------------------------------

    def _set_aside(self, span: Span, reason: str, error: BaseException | None) -> None:
        """Quarantine the single record of a span and move the position past it."""
        memory: Memory = span.seat.memory
        batch = Batch(
            self._projection.topic,
            span.seat.partition,
            span.first_offset,
            span.next_offset,
            {},
            memory.now.watermark_ms,
        )
        read = _Read(batch, [(span.first_offset, reason)])
        step = advance(self._projection, memory, batch, read.refused)
        self._store(span, read, step, error)
        self._settle(span, read, step, 0.0, 0.0)

    def _letters(
        self,
        span: Span,
        dead: Sequence[tuple[int, str]],
        outcome: Outcome,
        error: BaseException | None,
    ) -> list[Letter]:
        memory: Memory = span.seat.memory
        fresh = memory.position.next_offset
        reasons = [
            *((offset, why) for offset, why in dead if offset >= fresh),
            *outcome.dead.items(),
        ]
        if not reasons and not outcome.late:
            return []
        topic, agent = self._projection.topic, self.name
        by_offset = dict(zip(span.offsets().tolist(), span.messages, strict=True))
        letters = [
            dead_letter(topic.dead_letters, by_offset[offset], agent=agent, reason=why, error=error)
            for offset, why in sorted(reasons)
        ]
        late = outcome.late.values() if self._projection.late_output else ()
        for frame in late:
            marks = zip(frame[OFFSET].to_list(), frame["_watermark"].to_list(), strict=True)
            letters += [
                late_letter(topic.late, by_offset[offset], agent=agent, watermark_ms=watermark)
                for offset, watermark in marks
            ]
        return letters

    def _send(self, span: Span, letters: Sequence[Letter]) -> None:
        if not letters or self.silent_letters:
            return
        self._patiently(span.seat, lambda: self._outbox.send(letters))
        dead = sum(letter.destination.endswith(".dlq") for letter in letters)
        if dead:
            self._metrics.dead_letter("record", dead)
        if len(letters) > dead:
            self._metrics.late(len(letters) - dead)

    # -- the store ----------------------------------------------------------------------------

    def _write(self, seat: Seat, write: Write) -> None:
        """Write until durable. After an unknown outcome a refusal is a question: was it ours?"""
        unknown = False

        def attempt() -> None:
            nonlocal unknown
            with self._sink_lock:
                try:
                    self._sink.write(self._version, write)
                except SinkUnavailable:
                    unknown = True
                    raise
                except FenceRefused:
                    stored = self._sink.load(self._version, write.topic, write.partition)
                    if not (unknown and stored == write.position):
                        raise

        self._patiently(seat, attempt)

    def _show_early(self, seat: Seat) -> None:
        """Show what an idle partition has in open windows; never moves the position (C2)."""
        write = flush(self._projection, seat.memory, seat.topic, seat.partition)
        if write is not None:
            self._write(seat, write)

    def _patiently(self, seat: Seat, act: Callable[[], T]) -> T:
        """Do `act`, again and again while what it needs is down. Never skips, never gives up;
        ends with `Stopped` when the worker stops or the seat is revoked.
        """
        wait_ms = BACKOFF_MS_FIRST
        while True:
            try:
                return act()
            except RegistryUnavailable as error:
                self._metrics.registry_retry()
                reason: Exception = error
            except SinkUnavailable as error:
                self._metrics.sink_retry(type(error).__name__)
                reason = error
            except SinkRejected as error:
                if not error.transient:
                    raise
                self._metrics.sink_retry(type(error).__name__)
                reason = error
            except KafkaException as error:
                self._metrics.sink_retry(type(error).__name__)
                reason = error
            log.warning("waiting", agent=self.name, at=seat.name, error=str(reason))
            if self._stopping.wait(wait_ms * random.uniform(0.5, 1.0) / 1000) or seat.revoked:  # noqa: S311
                raise Stopped from reason
            wait_ms = min(wait_ms * 2, BACKOFF_MS_MAX)


def check_against_log(
    agent: str, seat: Seat, position: Position | None, log_bounds: LogBounds
) -> None:
    """Raise `LogMismatch` unless the log can continue this position."""
    if position is None:
        return
    where = f"{agent} on {seat.name}"
    remedy = f"Check the topic, then rebuild the read model: headrace rebuild {agent}"
    if position.topic_id != log_bounds.topic_id:
        raise LogMismatch(
            f"{where}: the topic was re-created (id {log_bounds.topic_id}, the read model was "
            f"folded from {position.topic_id}), so its offsets mean other records. {remedy}"
        )
    if position.next_offset > log_bounds.end:
        raise LogMismatch(
            f"{where}: folded up to offset {position.next_offset}, but the log ends at "
            f"{log_bounds.end}: its tail was lost. {remedy}"
        )
    if position.low_offset < log_bounds.start:
        raise LogMismatch(
            f"{where}: needs the log from offset {position.low_offset}, but retention has deleted "
            f"it up to {log_bounds.start}. {remedy}"
        )


def _with_offsets(frame: pl.DataFrame, offsets: np.ndarray) -> pl.DataFrame:
    rows = frame[ROW].to_numpy()
    taken = offsets if len(rows) == len(offsets) else offsets[rows]
    return frame.drop(ROW).with_columns(pl.Series(OFFSET, taken, pl.Int64))


def _newest_ms(frame: pl.DataFrame, event_time: str) -> int:
    newest = frame[event_time].to_physical().max()
    return newest if isinstance(newest, int) else 0
