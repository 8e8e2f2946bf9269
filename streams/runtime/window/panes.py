"""Tumbling and hopping windows, kept as panes.

A pane is the longest span that no window border cuts: the greatest common divisor of size and
slide (Li et al., "No pane, no gain", 2005). Rows are grouped into panes once per batch; a window
is a merge of its panes, so no row is ever multiplied by the number of windows it falls in.

Lateness is judged per row by its own watermark (rule C6): a row counts for exactly those windows
that were open when it came. In a hopping window a row may be late for some and in time for others;
such partials stay apart by the first window they count for (`_from`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import gcd

import numpy as np
import polars as pl

from streams.runtime.batch import WATERMARK
from streams.runtime.position import NO_WATERMARK
from streams.runtime.runs import CODE, UNTIL, Runs, codes_of
from streams.runtime.watermark import milliseconds
from streams.runtime.window.update import END, START, Emit, Spec, Update

PANE = "_pane"
FROM = "_from"
AS_WRITTEN = pl.QueryOptFlags.none()
"""For frames this small, looking for a better plan takes longer than carrying the plan out."""


@dataclass(frozen=True)
class PaneWindows:
    """Windows `[start, start + size)`, one every `slide`, by key. See `Windows`."""

    spec: Spec
    size_ms: int
    slide_ms: int
    offset_ms: int = 0
    watermark_ms: int = NO_WATERMARK
    panes: Runs = field(default_factory=Runs)

    def __post_init__(self) -> None:
        """Refuse windows that have no length or leave rows out."""
        if not 0 < self.slide_ms <= self.size_ms:
            raise ValueError(f"slide {self.slide_ms} ms must be in 1..{self.size_ms} (the size)")

    def add(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[PaneWindows, Update]:
        """Fold a batch; see `Windows.add`."""
        schema = rows.schema
        for aggregate in self.spec.aggregates.values():
            aggregate.check(schema)
        if nulls := rows[self.spec.time].null_count():
            raise ValueError(f"{nulls} rows without {self.spec.time}")
        placed = self._place(rows)
        late = placed[UNTIL] <= placed[WATERMARK]
        some_late = late.any()
        parts = self._parts(placed.filter(~late) if some_late else placed)
        totals = self._totals(parts)
        added = replace(
            self, watermark_ms=watermark_ms, panes=self.panes.put(totals, self.watermark_ms)
        )
        update = Update(
            changed=added._changed(self.watermark_ms, parts, totals, rows),
            deleted=pl.DataFrame(schema={c: schema[c] for c in self.spec.by} | {START: pl.Int64}),
            late=rows.filter(late) if some_late else rows.clear(),
            open_until_ms=int(parts[UNTIL].to_numpy().max()) if parts.height else None,
        )
        return added, update

    def provisional(self) -> pl.DataFrame | None:
        """Open windows of `Emit.FINAL`, as they stand."""
        if self.spec.emit is Emit.UPDATE:
            return None
        panes = self.panes.scan(pl.col(UNTIL) > self.watermark_ms)
        if panes is None:
            return None
        return self._merge(self._windows(panes).filter(pl.col(END) > self.watermark_ms))

    @property
    def _tumbling(self) -> bool:
        """A window is one pane, and a row in time counts for that one: `_from` is its start."""
        return self.slide_ms == self.size_ms

    def _place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with their pane, when it dies, and the first window they count for."""
        time = milliseconds(rows[self.spec.time]).alias("_time")
        pane, rest = _placing(
            self.size_ms, self.slide_ms, self.offset_ms, self.spec.allowed_lateness_ms
        )
        return (
            rows.lazy()
            .with_columns(time)
            .with_columns(pane)
            .with_columns(*rest)
            .collect(optimizations=AS_WRITTEN)
        )

    def _parts(self, timely: pl.DataFrame) -> pl.DataFrame:
        """Partial results of a batch by key and pane."""
        keys = [*self.spec.by, PANE] if self._tumbling else [*self.spec.by, PANE, FROM]
        grouped = timely.lazy().group_by(keys).agg(*self.spec.partials, pl.col(UNTIL).first())
        if self._tumbling:
            grouped = grouped.with_columns(pl.col(PANE).alias(FROM))
        return grouped.collect(optimizations=AS_WRITTEN)

    def _totals(self, parts: pl.DataFrame) -> pl.DataFrame:
        """The batch's panes merged with all that is known of their keys near them.

        Panes are stored in blocks of one window size, so that a window lies in two blocks.
        """
        block = pl.col(PANE)
        if not self._tumbling:
            block = block.sub(self.offset_ms).floordiv(self.size_ms)
        parts = parts.hstack([codes_of(parts, [*self.spec.by, block])])
        wanted = parts[CODE].to_numpy()
        if not self._tumbling:
            keys = parts.select(*self.spec.by, block).unique()
            near = [codes_of(keys, [*self.spec.by, pl.col(PANE) + n]) for n in (-1, 0, 1)]
            wanted = pl.concat(near).to_numpy()
        known = self.panes.take(np.unique(wanted))
        columns = [CODE, UNTIL, *self.spec.by, PANE, FROM, *self.spec.aggregates]
        if known is None:
            return parts[columns]
        alive = known.lazy().filter(pl.col(UNTIL) > self.watermark_ms)
        return (
            pl.concat([alive, parts.lazy().select(columns)])
            .group_by(*self.spec.by, PANE, FROM)
            .agg(*self.spec.merges, pl.col(UNTIL, CODE).first())
            .select(columns)
            .collect(optimizations=AS_WRITTEN)
        )

    def _changed(
        self, before_ms: int, parts: pl.DataFrame, totals: pl.DataFrame, rows: pl.DataFrame
    ) -> pl.DataFrame:
        """What to give out now; `totals` are complete for every window that `parts` touch."""
        known = self._windows(totals)
        update = self.spec.emit is Emit.UPDATE
        if not (update and self._tumbling and totals.height == parts.height):
            touched = self._windows(parts)
            if not update:
                touched = touched.filter(pl.col(END) <= before_ms)
            key = [*self.spec.by, START]
            known = known.join(touched.select(key).unique(), on=key, how="semi", nulls_equal=True)
        found = [self._merge(known)]
        if not update:
            found.extend(self._closed(before_ms))
        found = [frame for frame in found if frame.height]
        return pl.concat(found) if found else self.spec.empty(rows)

    def _closed(self, before_ms: int) -> list[pl.DataFrame]:
        """Windows whose end the watermark reached in this batch."""
        newest_closed = (
            self.watermark_ms - (self.watermark_ms - self.size_ms - self.offset_ms) % self.slide_ms
        )
        if newest_closed <= before_ms:
            return []
        reach = self.spec.allowed_lateness_ms
        near = (pl.col(UNTIL) > before_ms + reach) & (
            pl.col(FROM) + self.size_ms <= self.watermark_ms
        )
        panes = self.panes.scan(near)
        if panes is None:
            return []
        ended = pl.col(END).is_between(before_ms, self.watermark_ms, closed="right")
        return [self._merge(self._windows(panes).filter(ended))]

    def _windows(self, panes: pl.DataFrame) -> pl.LazyFrame:
        """One row per pane and window it counts for."""
        start = pl.col(PANE).alias(START)
        placed = panes.lazy()
        if not self._tumbling:
            last = _floor(pl.col(PANE), self.slide_ms, self.offset_ms) + 1
            starts = pl.int_ranges(pl.col(FROM), last, self.slide_ms).alias(START)
            placed, start = placed.with_columns(starts).explode(START), pl.col(START)
        return placed.with_columns(start, (start + self.size_ms).alias(END))

    def _merge(self, windows: pl.LazyFrame) -> pl.DataFrame:
        if not self._tumbling:
            windows = windows.group_by(*self.spec.by, START, END).agg(self.spec.merges)
        return windows.select(self.spec.columns).collect(optimizations=AS_WRITTEN)


@lru_cache(maxsize=256)
def _placing(
    size_ms: int, slide_ms: int, offset_ms: int, lateness_ms: int
) -> tuple[pl.Expr, list[pl.Expr]]:
    """Expressions for `_pane` of a `_time`, and for what depends on the pane; made once, since
    making them takes longer than computing them for a small batch.
    """

    def start(time: pl.Expr) -> pl.Expr:
        """Start of the last window that begins at or before `time`."""
        return _floor(time, slide_ms, offset_ms)

    width = gcd(size_ms, slide_ms)
    pane = _floor(pl.col("_time"), width, offset_ms).alias(PANE)
    if size_ms == slide_ms:
        return pane, [(pl.col(PANE) + (size_ms + lateness_ms)).alias(UNTIL)]
    last_dies = start(pl.col(PANE)) + size_ms + lateness_ms
    holding = start(pl.col(PANE) + width - size_ms - 1)
    open_after = start(pl.col(WATERMARK) - lateness_ms - size_ms)
    first = pl.max_horizontal(holding, open_after) + slide_ms
    return pane, [last_dies.alias(UNTIL), first.alias(FROM)]


def _floor(time: pl.Expr, step: int, offset: int) -> pl.Expr:
    return (time - offset).floordiv(step) * step + offset
