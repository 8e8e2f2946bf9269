"""Rule tests without a broker: a log in memory, the real step, and crashes where you want them.

    harness = Harness(PROJECTION, MemorySink(PROJECTION.model))
    harness.send(AdClicked(...), {"campaign_id": "c1", ...})
    harness.run(cuts=[2, 5])
    harness.crash()
    harness.run()
    assert harness.rows("windows").height == 3

`assert_replay_deterministic` is the test every projection has: the same log in random batches,
with crashes before and after the write and idle flushes between, ends in the same stored rows,
counts and late rows as an undisturbed run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import fastavro
import polars as pl

from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel, Sink
from streams.runtime.step import Memory, Refused, Step, advance, flush, restore
from streams.runtime.topic import RecordType
from streams.runtime.watermark import milliseconds, skewed, stamp

APPENDED = "_timestamp"
TICK = ""
"""Record name of a row that only moves event time."""

Row = Any
"""A typed row, a mapping of its fields, a frame of rows, or wire bytes (Confluent format)."""


@dataclass(frozen=True)
class _Record:
    offset: int
    fullname: str
    values: Mapping[str, Any]
    append_ms: int | None


@dataclass
class Harness:
    """One partition of one projection, driven by hand.

    `schemas` maps schema ids to record types, for rows given as wire bytes. `offset_step` leaves
    gaps between offsets, as transactions and compaction do.
    """

    projection: Projection
    sink: Sink
    partition: int = 0
    version: int = 1
    topic_id: str = "topic-under-test"
    schemas: Mapping[int, RecordType] = field(default_factory=dict)
    offset_step: int = 1
    late: list[tuple[int, str]] = field(default_factory=list, init=False)
    """`(offset, record name)` of every late row reported, in order of the reports."""
    dead: dict[int, str] = field(default_factory=dict, init=False)
    """Reason of every row quarantined by the fold, by offset."""
    replayed: int = field(default=0, init=False)
    """Rows folded again after a crash."""
    _log: list[_Record] = field(default_factory=list, init=False)
    _memory: Memory | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Prepare the version in the sink."""
        self.sink.prepare(self.version)

    # --- the log

    def send(self, *rows: Row, record: str | None = None, append_ms: int | None = None) -> None:
        """Append rows to the log. `record` is the full name for mappings and frames of a topic
        with several record types; `append_ms` is the log's time (None: the row's event time).
        """
        for row in rows:
            for fullname, values in self._parse(row, record):
                self._append(fullname, values, append_ms)

    def tick(self, event_ms: int) -> None:
        """Append a row that the fold does not use and that moves event time to `event_ms`."""
        if self.projection.topic.event_time is None:
            raise ValueError(f"topic {self.projection.topic.name} has no event time")
        self._append(TICK, {self.projection.topic.event_time: event_ms}, None)

    @property
    def next_offset(self) -> int:
        """The offset that the next row gets."""
        return len(self._log) * self.offset_step

    def _append(self, fullname: str, values: Mapping[str, Any], append_ms: int | None) -> None:
        self._log.append(_Record(self.next_offset, fullname, values, append_ms))

    def _parse(self, row: Row, record: str | None) -> Iterable[tuple[str, Mapping[str, Any]]]:
        records = self.projection.topic.records
        if isinstance(row, bytes):
            known = self.schemas[int.from_bytes(row[1:5])]
            values: Any = fastavro.schemaless_reader(BytesIO(row[5:]), known.schema, None)
            return [(known.fullname, values)]
        for known in records:
            if isinstance(row, known.row):
                return [(known.fullname, {name: getattr(row, name) for name in known.columns})]
        fullname = record or records[0].fullname
        if record is None and len(records) > 1:
            raise TypeError(f"topic {self.projection.topic.name} has several records: say which")
        rows = row.to_dicts() if isinstance(row, pl.DataFrame) else [dict(row)]
        return [(fullname, values) for values in rows]

    # --- the reader

    @property
    def memory(self) -> Memory:
        """What the reader holds; restored from the sink when it holds nothing."""
        if self._memory is None:
            stored = self.sink.load(self.version, self.projection.topic.name, self.partition)
            rows = {name: self._stored(name) for name in self.projection.restores}
            self._memory = restore(self.projection, self.topic_id, stored, rows)
        return self._memory

    def step(self, rows_max: int, *, lose_write: bool = False) -> Step | None:
        """Fold and store at most `rows_max` rows; None at the end of the log. With `lose_write`
        the process dies between the fold and the write.
        """
        memory = self.memory
        todo = [r for r in self._log if r.offset >= memory.now.offset][:rows_max]
        if not todo:
            return None
        batch, refused = self._batch(memory, todo)
        step = advance(self.projection, memory, batch, refused)
        stop = memory.position.next_offset
        self.replayed += sum(record.offset < stop for record in todo)
        if lose_write:
            self.crash()
            return step
        if step.write is not None:
            self.sink.write(self.version, step.write)
        if step.outcome is not None:
            for name, frame in step.outcome.late.items():
                self.late += [(offset, name) for offset in frame[OFFSET].to_list()]
            self.dead |= step.outcome.dead
        self._memory = step.memory
        return step

    def run(self, cuts: Iterable[int] = ()) -> None:
        """Fold to the end of the log: batches of the sizes in `cuts`, then all that is left."""
        for rows in cuts:
            self.step(rows)
        while self.step(len(self._log)) is not None:
            pass

    def crash(self) -> None:
        """Forget everything that is not in the sink."""
        self._memory = None

    def idle(self) -> None:
        """The partition is silent: show what is open."""
        write = flush(self.projection, self.memory, self.projection.topic.name, self.partition)
        if write is not None:
            self.sink.write(self.version, write)

    def _batch(self, memory: Memory, todo: Sequence[_Record]) -> tuple[Batch, Refused]:
        topic = self.projection.topic
        frames = {
            name: self._frame(name, [r for r in todo if r.fullname == name])
            for name in dict.fromkeys(record.fullname for record in todo)
        }
        refused: list[int] = []
        if topic.event_time is not None:
            for name, frame in frames.items():
                if topic.event_time in frame.columns:
                    odd = skewed(frame[topic.event_time], frame[APPENDED], topic.future_skew_ms)
                    refused += frame.filter(odd)[OFFSET].to_list()
                    frames[name] = frame.filter(~odd)
        stamped, after = stamp(
            frames, topic.event_time, memory.now.watermark_ms, topic.out_of_orderness_ms
        )
        batch = Batch(
            topic,
            self.partition,
            memory.now.offset,
            todo[-1].offset + self.offset_step,
            {n: self._projected(n, f) for n, f in stamped.items() if n != TICK and f.height},
            after,
        )
        return batch, Refused({Fate.QUARANTINED: refused}, memory.now.filter)

    def _frame(self, name: str, records: Sequence[_Record]) -> pl.DataFrame:
        time = self.projection.topic.event_time
        if name == TICK:
            dtypes: Mapping[str, Any] = {str(time): pl.Int64}
        else:
            dtypes = self.projection.topic.record(name).dtypes
        columns = {column: [record.values[column] for record in records] for column in dtypes}
        frame = pl.DataFrame(columns, schema=dict(dtypes))
        offsets = pl.Series(OFFSET, [record.offset for record in records], dtype=pl.Int64)
        appended = pl.Series(APPENDED, [record.append_ms for record in records], dtype=pl.Int64)
        if time in frame.columns:
            appended = appended.zip_with(appended.is_not_null(), milliseconds(frame[time]))
        return frame.with_columns(offsets, appended.alias(APPENDED))

    def _projected(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Only what the projection asked for: a fold that uses more fails here, too."""
        frame = frame.drop(APPENDED)
        wanted = (self.projection.reads or {}).get(name)
        if wanted is None:
            return frame
        return frame.select(c for c in frame.columns if c in wanted or c.startswith("_"))

    # --- what came of it

    def rows(self, table: str) -> pl.DataFrame:
        """The stored rows of a table in canonical order, without `_partition`."""
        frame = self._stored(table)
        return frame.sort(frame.columns)

    @property
    def counts(self) -> dict[str, int]:
        """Rows by fate, as stored in the position."""
        stored = self.sink.load(self.version, self.projection.topic.name, self.partition)
        return {} if stored is None else dict(stored.counts)

    def _stored(self, table: str) -> pl.DataFrame:
        declared = self.projection.model.table(table).columns
        empty = pl.DataFrame(schema=declared)
        found = self.sink.rows(self.version, table, self.partition)
        return pl.concat([empty, *(frame.select(list(declared)) for frame in found)])


@dataclass(frozen=True)
class Disturbed:
    """What the disturbed run went through; a test is void when these are zero."""

    batches: int
    crashes: int
    replayed: int


def assert_replay_deterministic(
    projection: Projection,
    rows: Sequence[Row],
    seed: int,
    open_sink: Callable[[ReadModel], Sink],
    *,
    append_ms: Sequence[int] | None = None,
    batch_max: int = 7,
) -> Disturbed:
    """Fail unless random batches, crashes and idle flushes end in what a clean run ends in.

    Compares stored rows of all tables, counts, and the late and dead rows reported. `open_sink`
    opens an empty sink; `append_ms` are the log's times of the rows.
    """
    clean, rough = (Harness(projection, open_sink(projection.model)) for _ in range(2))
    for harness in (clean, rough):
        for n, row in enumerate(rows):
            harness.send(row, append_ms=None if append_ms is None else append_ms[n])
    clean.run()
    clean.idle()
    chance = random.Random(seed)  # noqa: S311 - a test plan, not a secret
    disturbed = _disturb(rough, chance, batch_max)
    rough.idle()
    _compare(projection, clean, rough, seed)
    return disturbed


def _disturb(harness: Harness, chance: random.Random, batch_max: int) -> Disturbed:
    """Run to the end of the log, with a fault after most batches.

    A replay is interrupted at most once, so that the run ends however long the replays are.
    """
    batches = crashes = 0
    interrupted = False
    while True:
        fault = chance.choice(("none", "none", "crash", "lost", "idle", "idle+crash"))
        if harness.memory.replaying:
            fault = "none" if interrupted else chance.choice(("none", "none", "none", "crash"))
            interrupted |= fault == "crash"
        elif interrupted and fault == "lost":
            fault = "none"
        lost = fault == "lost"
        step = harness.step(chance.randint(1, batch_max), lose_write=lost)
        if step is None:
            return Disturbed(batches, crashes, harness.replayed)
        batches += 1
        interrupted = lost or (interrupted and step.write is None)
        if fault.startswith("idle"):
            harness.idle()
        if fault.endswith("crash"):
            crashes += 1
            harness.crash()
        crashes += lost


def _compare(projection: Projection, clean: Harness, rough: Harness, seed: int) -> None:
    if clean.counts != rough.counts:
        raise AssertionError(f"seed {seed}: counts {rough.counts}, clean run {clean.counts}")
    if Counter(clean.late) != Counter(rough.late):
        raise AssertionError(f"seed {seed}: late {rough.late}, clean run {clean.late}")
    if clean.dead != rough.dead:
        raise AssertionError(f"seed {seed}: dead {rough.dead}, clean run {clean.dead}")
    for table in projection.model.tables:
        expected, got = clean.rows(table.name), rough.rows(table.name)
        if not expected.equals(got):
            more = got.join(expected, on=got.columns, how="anti", nulls_equal=True).rows()
            less = expected.join(got, on=got.columns, how="anti", nulls_equal=True).rows()
            raise AssertionError(f"seed {seed}: {table.name} has {more}, a clean run has {less}")
