"""Sorted runs: an immutable keyed store of rows whose cost per batch hardly grows with its size.

A log-structured merge tree in memory (O'Neil et al., 1996), merged lazily: every batch adds one
run, sorted by a 64-bit code; runs of like size lie beside each other until there are `FAN` of
them, and only the oldest and largest one is kept ahead of all others together (Dayan and Idreos,
"Dostoevsky", 2018, call it lazy levelling). So a row is moved about log₈ of the state's size in
batches times, and rows and their older versions stay within twice the rows. Reading n codes asks
every run; a bitmap of the codes' first bits answers for most that are not there.

**All rows of one code are replaced together**: the newest run that holds a code holds all of its
rows. So two keys that share a code (64-bit hashes do collide) only share a bucket, and the
answer stays exact: a caller puts back what it took.

Every row has `_until` (milliseconds): it is dead once the watermark has reached it. A caller
promises that a newer version of a row never dies earlier than an older one. Memory is bounded by
about twice the rows alive, plus the versions of the smaller runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

CODE = "_code"
UNTIL = "_until"
FAN = 8
"""Runs of like size that become one: fewer merges against more runs to ask."""
SMALL_ROWS = 4_096
"""Runs below it become one in pairs: their number costs more than their rows."""

Codes = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]


def codes_of(rows: pl.DataFrame, columns: Sequence[str | pl.Expr]) -> pl.Series:
    """64-bit codes of these columns; equal values have equal codes within this process."""
    return rows.select(columns).hash_rows(seed=0x9E37).alias(CODE)


@dataclass(frozen=True)
class _Marks:
    """Which values the first bits of some codes take: four to eight bits a code."""

    shift: np.uint64
    bits: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, codes: Codes) -> _Marks:
        width = codes.size.bit_length() + 2
        shift = np.uint64(64 - width)
        marked = np.zeros(1 << width, dtype=np.bool_)
        marked[codes >> shift] = True
        return cls(shift, np.packbits(marked, bitorder="little"))

    def perhaps(self, codes: Codes) -> Places:
        """Which of these codes may be there; the others are not."""
        first = (codes >> self.shift).astype(np.int64)
        return np.flatnonzero(self.bits[first >> 3] >> (first & 7).astype(np.uint8) & 1)


@dataclass(frozen=True)
class _Run:
    rows: pl.DataFrame
    codes: Codes = field(repr=False)
    marks: _Marks | None = field(repr=False)
    unique: bool
    until_first: int
    until_half: int
    until_last: int

    @classmethod
    def of(cls, rows: pl.DataFrame) -> _Run:
        until = rows[UNTIL].to_numpy()
        # Rows are in hash order, so every n-th of them is a fair sample.
        half = int(np.median(until[:: max(1, until.size // 1024)]))
        codes = rows[CODE].to_numpy()
        marks = _Marks.of(codes) if codes.size > SMALL_ROWS else None
        unique = bool((codes[1:] != codes[:-1]).all())
        return cls(rows, codes, marks, unique, int(until.min()), half, int(until.max()))

    def find(self, codes: Codes) -> tuple[Places, Places]:
        """Which of these codes are there, and where the rows of each begin."""
        if self.marks is None:
            which, asked = np.arange(codes.size), codes
        else:
            which = self.marks.perhaps(codes)
            asked = codes[which]
        at = np.searchsorted(self.codes, asked)
        hit = self.codes[np.minimum(at, self.codes.size - 1)] == asked
        return which[hit], at[hit]

    def take(self, at: Places) -> pl.DataFrame:
        """All rows of the codes that begin there."""
        if not self.unique:
            counts = np.searchsorted(self.codes, self.codes[at], side="right") - at
            skipped = np.cumsum(counts) - counts
            at = np.repeat(at - skipped, counts) + np.arange(counts.sum())
        return self.rows[at]

    def alive(self, watermark_ms: int) -> _Run | None:
        """This run without dead rows once half of them are dead, so that each pass is paid for."""
        if self.until_last <= watermark_ms:
            return None
        if self.until_half > watermark_ms:
            return self
        return _Run.of(self.rows.filter(pl.col(UNTIL) > watermark_ms))


@dataclass(frozen=True)
class Runs:
    """Rows by code; `runs` from the oldest and largest to the newest."""

    runs: tuple[_Run, ...] = ()

    @property
    def height(self) -> int:
        """Rows held, older versions and dead rows included."""
        return sum(run.rows.height for run in self.runs)

    def take(self, codes: Codes) -> pl.DataFrame | None:
        """All rows of these codes (sorted, unique), dead ones perhaps included; None for none."""
        found: list[pl.DataFrame] = []
        for run in reversed(self.runs):
            if not codes.size:
                break
            which, at = run.find(codes)
            if which.size:
                found.append(run.take(at))
                codes = np.delete(codes, which)
        return pl.concat(found) if found else None

    def put(self, rows: pl.DataFrame, watermark_ms: int) -> Runs:
        """These rows in place of all rows with the same codes; frees what is dead."""
        runs = [alive for run in self.runs if (alive := run.alive(watermark_ms))]
        if rows.height:
            runs.append(_Run.of(rows if rows[CODE].is_sorted() else rows.sort(CODE)))
        while due := _due([run.rows.height for run in runs]):
            merged = _merge(runs[-due:], watermark_ms)
            del runs[-due:]
            if merged.height:
                runs.append(_Run.of(merged))
        return Runs(tuple(runs))

    def scan(self, predicate: pl.Expr) -> pl.DataFrame | None:
        """The current rows that satisfy `predicate`: one pass over everything; None for none."""
        found: list[pl.DataFrame] = []
        for n, run in enumerate(self.runs):
            rows = run.rows.filter(predicate)
            for newer in self.runs[n + 1 :]:
                if rows.height:
                    replaced, _ = newer.find(rows[CODE].to_numpy())
                    if replaced.size:
                        kept = np.ones(rows.height, dtype=np.bool_)
                        kept[replaced] = False
                        rows = rows.filter(pl.Series(kept))
            if rows.height:
                found.append(rows)
        return pl.concat(found) if found else None


def _due(heights: list[int]) -> int:
    """How many of the newest runs should become one now; 0 for none."""
    if len(heights) < 2:
        return 0
    if sum(heights[1:]) >= heights[0]:
        return len(heights)
    newest = heights[-1]
    if newest < SMALL_ROWS:
        return 2 if heights[-2] < 2 * newest else 0
    alike = next((n for n, h in enumerate(reversed(heights)) if h >= FAN // 2 * newest), 0)
    return alike if alike >= FAN else 0


def _merge(runs: Sequence[_Run], watermark_ms: int) -> pl.DataFrame:
    """One sorted frame of runs, the oldest first: of every code, the rows of its newest run."""
    codes = np.concatenate([run.codes for run in runs])
    # Stable: rows of one code stay from old to new. It also takes sorted runs as they are.
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    last = np.append(codes[1:] != codes[:-1], True)
    if not last.all():
        source = np.repeat(np.arange(len(runs)), [run.codes.size for run in runs])[order]
        ends = np.flatnonzero(last)
        newest = np.repeat(source[ends], np.diff(ends, prepend=-1))
        order = order[source == newest]
    if min(run.until_first for run in runs) <= watermark_ms:
        until = np.concatenate([run.rows[UNTIL].to_numpy() for run in runs])
        order = order[until[order] > watermark_ms]
    return pl.concat([run.rows for run in runs])[order]
