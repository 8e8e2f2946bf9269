"""Sorted runs: an immutable keyed store of rows whose cost per batch does not grow with its size.

A log-structured merge tree in memory (O'Neil et al., 1996): every batch adds one run, sorted by
a 64-bit code; a run is merged into its older neighbour when it is no longer small beside it.
Reading n codes costs n binary searches in each of O(log size) runs.

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
GROWTH = 2
"""A run is merged when its older neighbour is less than this many times its size: fewer runs to
search against less merging."""

Codes = npt.NDArray[np.uint64]


def codes_of(rows: pl.DataFrame, columns: Sequence[str | pl.Expr]) -> pl.Series:
    """64-bit codes of these columns; equal values have equal codes within this process."""
    return rows.select(columns).hash_rows(seed=0x9E37).alias(CODE)


@dataclass(frozen=True)
class _Run:
    rows: pl.DataFrame
    codes: Codes = field(repr=False)
    until_first: int
    until_half: int
    until_last: int

    @classmethod
    def of(cls, rows: pl.DataFrame) -> _Run:
        until = rows[UNTIL].to_numpy()
        # Rows are in hash order, so every n-th of them is a fair sample.
        half = int(np.median(until[:: max(1, until.size // 1024)]))
        codes = rows[CODE].to_numpy()
        return cls(rows, codes, int(until.min()), half, int(until.max()))

    def holds(self, codes: Codes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        """Where each code would stand, and whether it is there."""
        at = np.searchsorted(self.codes, codes)
        return at, self.codes[np.minimum(at, self.codes.size - 1)] == codes

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
            at, hit = run.holds(codes)
            if hit.any():
                found.append(run.rows[_ranges(at[hit], run.codes, codes[hit])])
                codes = codes[~hit]
        return pl.concat(found) if found else None

    def put(self, rows: pl.DataFrame, watermark_ms: int) -> Runs:
        """These rows in place of all rows with the same codes; frees what is dead."""
        runs = [alive for run in self.runs if (alive := run.alive(watermark_ms))]
        if rows.height:
            runs.append(_Run.of(rows if rows[CODE].is_sorted() else rows.sort(CODE)))
        while len(runs) > 1 and runs[-2].rows.height < GROWTH * runs[-1].rows.height:
            newer, older = runs.pop(), runs.pop()
            merged = _merge(older, newer, watermark_ms)
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
                    _, replaced = newer.holds(rows[CODE].to_numpy())
                    rows = rows.filter(pl.Series(~replaced)) if replaced.any() else rows
            if rows.height:
                found.append(rows)
        return pl.concat(found) if found else None


def _ranges(at: npt.NDArray[np.int64], codes: Codes, wanted: Codes) -> npt.NDArray[np.int64]:
    """Indices of all rows with the wanted codes; `at` is where each begins."""
    counts = np.searchsorted(codes, wanted, side="right") - at
    skipped = np.cumsum(counts) - counts
    return np.repeat(at - skipped, counts) + np.arange(counts.sum())


def _merge(older: _Run, newer: _Run, watermark_ms: int) -> pl.DataFrame:
    kept = older.rows
    if older.holds(newer.codes)[1].any():  # the smaller one searches first
        kept = kept.filter(pl.Series(~newer.holds(older.codes)[1]))
    rows = kept.merge_sorted(newer.rows, key=CODE)
    if min(older.until_first, newer.until_first) > watermark_ms:
        return rows.rechunk()
    return rows.filter(pl.col(UNTIL) > watermark_ms).rechunk()
