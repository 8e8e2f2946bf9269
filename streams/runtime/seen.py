"""Which ids were seen: exactly-once by content, within a horizon of event time.

An id is remembered until the watermark passes its event time + horizon, so the memory is bounded
by the events of one horizon. What a row is told depends on the log alone: an id counts as
remembered *for a row* iff it has not expired by that row's own watermark, whenever the memory
happened to be cleaned.

Ids are kept as 128-bit hashes, content as 64-bit hashes. Two of n ids are mistaken for each other
with probability n² / 2¹²⁹ (n = 10⁹: 10⁻²¹); a changed repeat passes for a plain one with
probability 2⁻⁶⁴.

**Replay.** A restart rebuilds this memory from the low offset on, without the ids before it, and
must come to the same verdicts. Therefore the event time is part of the content: a repeat expires
with its original, so whatever the original is open in holds both back. And a conflict remembers
the offset of the row it was judged by: `open_from_offset`. A fold must put `NEW` and `CONFLICT`
rows alike into its windows; one that drops conflicts is replayed rightly only with windows (size
+ lateness) no longer than the horizon, and not with sessions, which have no such bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.position import NO_WATERMARK
from streams.runtime.runs import CODE, UNTIL, Runs
from streams.runtime.watermark import milliseconds

Int64s = npt.NDArray[np.int64]
Uint64s = npt.NDArray[np.uint64]
Int8s = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]

REST = "_rest"
CONTENT = "_content"
FIRST = "_first"
SCHEMA = {
    CODE: pl.UInt64,
    REST: pl.UInt64,
    UNTIL: pl.Int64,
    CONTENT: pl.UInt64,
    FIRST: pl.Int64,
}


class Verdict(IntEnum):
    """What a row is to those before it."""

    NEW = 0
    DUPLICATE = 1
    """Same id, same content as one remembered: drop and count."""
    CONFLICT = 2
    """A remembered id with content not seen under it: somebody reused an id. The caller keeps the
    row under another id; a repeat of the same conflict is a `DUPLICATE`."""


@dataclass(frozen=True)
class SeenIds:
    """The ids of one partition; immutable.

    `id`, `time` and `content` name columns: two rows say the same iff `time` and all of `content`
    are equal. `horizon_ms` is how long, in event time, repeats are recognised.
    """

    id: str
    time: str
    content: tuple[str, ...]
    horizon_ms: int
    watermark_ms: int = NO_WATERMARK
    ids: Runs = field(default_factory=Runs)
    conflicts: Runs = field(default_factory=Runs)

    def check(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[SeenIds, pl.Series]:
        """The memory with these rows, and a `Verdict` for each (Int8, in their order).

        Rows are in offset order, with `_offset` and `_watermark`; `watermark_ms` is the watermark
        after the batch. A row with event time + horizon at or below its own watermark is late and
        must have been judged so before: `ValueError`. The rows matter (`Outcome.open_until_ms`)
        until the last event time + horizon, and further back by `open_from_offset`.
        """
        batch = self._hashed(rows)
        if (batch.until <= batch.watermark).any():
            raise ValueError("rows beyond the horizon: judge them late before looking for repeats")
        first, uniform = _groups(batch)
        known = _alive(self.ids.take(batch.code[first]), self.watermark_ms)
        old_until, old_content = _matched(known, batch, first)
        visible = old_until > batch.watermark[first]
        # Easy: all rows of the id say the same, and so does what is remembered.
        easy = uniform & ~(visible & (old_content != batch.content[first]))
        verdicts = np.full(rows.height, Verdict.DUPLICATE, dtype=np.int8)
        fresh = first[easy & ~visible]
        verdicts[fresh] = Verdict.NEW
        ids, conflicts = batch.entries(fresh), None
        if not easy.all():
            hard = np.flatnonzero(np.isin(batch.code, batch.code[first[~easy]]))
            more, conflicts = self._one_by_one(batch, hard, known, verdicts)
            ids = pl.concat([ids, more])
        memory = replace(
            self,
            watermark_ms=watermark_ms,
            ids=_remember(self.ids, ids, known, self.watermark_ms),
            conflicts=self.conflicts if conflicts is None else conflicts,
        )
        return memory, pl.Series("verdict", verdicts)

    @property
    def open_from_offset(self) -> int | None:
        """The lowest offset that a remembered conflict was judged by; see `Outcome`."""
        alive = _alive(self.conflicts.scan(pl.lit(value=True)), self.watermark_ms)
        return None if alive is None or not alive.height else alive.select(pl.min(FIRST)).item()

    def _hashed(self, rows: pl.DataFrame) -> _Rows:
        return _Rows(
            code=rows[self.id].hash(seed=1).to_numpy(),
            rest=rows[self.id].hash(seed=2).to_numpy(),
            content=rows.select(self.time, *self.content).hash_rows(seed=3).to_numpy(),
            until=(milliseconds(rows[self.time]) + self.horizon_ms).to_numpy(),
            watermark=rows[WATERMARK].to_numpy(),
            offset=rows[OFFSET].to_numpy(),
        )

    def _one_by_one(
        self, rows: _Rows, hard: Int64s, known: pl.DataFrame | None, verdicts: Int8s
    ) -> tuple[pl.DataFrame, Runs]:
        """Judge the few rows whose id comes with several contents, in offset order.

        Writes `verdicts`; returns the new entries and the conflicts with those of these rows.
        A conflict is remembered under id and content together, and the id for as long as its
        last conflict: else a repeat of that one would be new once the first content is forgotten.
        (A repeat of the first content is late by then: it has the same event time.)
        """
        pairs = rows.pairs()
        paired = _alive(self.conflicts.take(np.unique(pairs.code[hard])), self.watermark_ms)
        seen, conflicts = _by_hash(known), _by_hash(paired)
        new: dict[_Hash, _Entry] = {}
        new_conflicts: dict[_Hash, _Entry] = {}
        for n in hard.tolist():
            key = (int(rows.code[n]), int(rows.rest[n]))
            pair = (int(pairs.code[n]), int(pairs.rest[n]))
            watermark, content = int(rows.watermark[n]), int(rows.content[n])
            old = seen.get(key, _NONE)
            if old.until <= watermark:
                entry = _Entry(int(rows.until[n]), content, int(rows.offset[n]))
                seen[key] = new[key] = entry
                verdicts[n] = Verdict.NEW
            elif old.content != content and conflicts.get(pair, _NONE).until <= watermark:
                entry = _Entry(int(rows.until[n]), content, old.first)
                conflicts[pair] = new_conflicts[pair] = entry
                if entry.until > old.until:
                    seen[key] = new[key] = _Entry(entry.until, old.content, int(rows.offset[n]))
                verdicts[n] = Verdict.CONFLICT
            else:
                verdicts[n] = Verdict.DUPLICATE
        kept = _remember(self.conflicts, _frame(new_conflicts), paired, self.watermark_ms)
        return _frame(new), kept


class _Entry(NamedTuple):
    """When an id is forgotten, its first content, and the offset of the row that it goes back to:
    the one that is remembered longest.
    """

    until: int
    content: int
    first: int


_Hash = tuple[int, int]
_NONE = _Entry(NO_WATERMARK, 0, -1)


def _alive(found: pl.DataFrame | None, watermark_ms: int) -> pl.DataFrame | None:
    return None if found is None else found.filter(pl.col(UNTIL) > watermark_ms)


def _remember(
    runs: Runs, entries: pl.DataFrame, known: pl.DataFrame | None, watermark_ms: int
) -> Runs:
    if known is not None and known.height:
        # Another id may share the 64-bit code: it goes back with the new one.
        others = known.join(entries, on=CODE, how="semi")
        others = others.join(entries, on=[CODE, REST], how="anti")
        entries = pl.concat([entries, others.select(entries.columns)])
    return runs.put(entries, watermark_ms)


def _by_hash(found: pl.DataFrame | None) -> dict[_Hash, _Entry]:
    if found is None:
        return {}
    columns = (found[name].to_list() for name in (CODE, REST, UNTIL, CONTENT, FIRST))
    return {(c, r): _Entry(u, x, f) for c, r, u, x, f in zip(*columns, strict=True)}


def _frame(entries: dict[_Hash, _Entry]) -> pl.DataFrame:
    rows = [(*key, *entry) for key, entry in entries.items()]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@dataclass(frozen=True)
class _Rows:
    """Rows of a batch as arrays: the two halves of the id's hash, the content's, and times."""

    code: Uint64s
    rest: Uint64s
    content: Uint64s
    until: Int64s
    watermark: Int64s
    offset: Int64s

    def pairs(self) -> _Rows:
        """The same rows, known by id and content together."""
        return replace(
            self,
            code=self.code ^ self.content * np.uint64(0x9E3779B97F4A7C15),
            rest=self.rest ^ self.content * np.uint64(0xC2B2AE3D27D4EB4F),
        )

    def entries(self, at: Int64s) -> pl.DataFrame:
        columns = (self.code, self.rest, self.until, self.content, self.offset)
        return pl.DataFrame(
            dict(zip(SCHEMA, (column[at] for column in columns), strict=True)), schema=SCHEMA
        )


def _groups(rows: _Rows) -> tuple[Int64s, Bools]:
    """The first row of every code, by code, and whether all rows of that code say the same."""
    order = np.argsort(rows.code)
    code = rows.code[order]
    new = np.ones(code.size, dtype=np.bool_)
    np.not_equal(code[1:], code[:-1], out=new[1:])
    if new.all():
        return order, new
    starts = np.flatnonzero(new)
    first = np.minimum.reduceat(order, starts)
    leader = np.repeat(first, np.diff(starts, append=order.size))
    differs = (rows.rest[order] != rows.rest[leader]) | (
        rows.content[order] != rows.content[leader]
    )
    return first, ~np.logical_or.reduceat(differs, starts)


def _matched(known: pl.DataFrame | None, rows: _Rows, first: Int64s) -> tuple[Int64s, Uint64s]:
    """Expiry (`NO_WATERMARK`: none) and content of the entry known for each of these rows."""
    until = np.full(first.size, NO_WATERMARK, dtype=np.int64)
    content = np.zeros(first.size, dtype=np.uint64)
    if known is None or not known.height:
        return until, content
    asked = pl.DataFrame({CODE: rows.code[first], REST: rows.rest[first]}).with_row_index("_n")
    hits = known.join(asked, on=[CODE, REST], how="inner")
    at = hits["_n"].to_numpy()
    until[at] = hits[UNTIL].to_numpy()
    content[at] = hits[CONTENT].to_numpy()
    return until, content
