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
from math import gcd

import polars as pl

from streams.runtime.batch import WATERMARK
from streams.runtime.position import NO_WATERMARK
from streams.runtime.runs import CODE, UNTIL, Runs, codes_of
from streams.runtime.watermark import milliseconds
from streams.runtime.window.update import END, START, Emit, Spec, Update

PANE = "_pane"
FROM = "_from"
BLOCK = "_block"


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
        for aggregate in self.spec.aggregates.values():
            aggregate.check(rows.schema)
        if rows[self.spec.time].null_count():
            raise ValueError(f"{rows[self.spec.time].null_count()} rows without {self.spec.time}")
        placed = self._place(rows)
        late = pl.col(UNTIL) <= pl.col(WATERMARK)
        parts = (
            placed.filter(~late)
            .group_by(*self.spec.by, PANE, FROM)
            .agg(*self.spec.partials, pl.col(UNTIL).first())
        )
        totals = self._totals(parts)
        added = replace(
            self, watermark_ms=watermark_ms, panes=self.panes.put(totals, self.watermark_ms)
        )
        update = Update(
            changed=added._changed(self.watermark_ms, parts, totals, rows),
            deleted=rows.clear().select(*self.spec.by, pl.lit(0, pl.Int64).alias(START)),
            late=rows.filter(placed.select(late).to_series()),
            open_until_ms=parts.select(pl.col(UNTIL).max()).item() if parts.height else None,
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

    def _place(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Rows with their pane, when it dies, and the first window they count for."""
        time, pane = pl.col("_time"), pl.col(PANE)
        width = gcd(self.size_ms, self.slide_ms)
        open_after = pl.col(WATERMARK) - self.spec.allowed_lateness_ms - self.size_ms
        return (
            rows.with_columns(milliseconds(rows[self.spec.time]).alias("_time"))
            .with_columns(_floor(time, width, self.offset_ms).alias(PANE))
            .with_columns(
                (self._start(pane) + self.size_ms + self.spec.allowed_lateness_ms).alias(UNTIL),
                pl.max_horizontal(
                    self._start(pane + width - self.size_ms - 1), self._start(open_after)
                ).alias(FROM)
                + self.slide_ms,
            )
        )

    def _start(self, time: pl.Expr) -> pl.Expr:
        """Start of the last window that begins at or before `time`."""
        return _floor(time, self.slide_ms, self.offset_ms)

    def _totals(self, parts: pl.DataFrame) -> pl.DataFrame:
        """The batch's panes merged with all that is known of their keys near them.

        Panes are stored in blocks of one window size, so that a window lies in two blocks.
        """
        block = pl.col(PANE).sub(self.offset_ms).floordiv(self.size_ms)
        parts = parts.with_columns(block.alias(BLOCK))
        parts = parts.with_columns(codes_of(parts, [*self.spec.by, BLOCK]))
        wanted = parts[CODE]
        if self.slide_ms < self.size_ms:
            keys = parts.select(*self.spec.by, BLOCK).unique()
            near = [codes_of(keys, [*self.spec.by, pl.col(BLOCK) + n]) for n in (-1, 0, 1)]
            wanted = pl.concat(near)
        known = self.panes.take(wanted.unique().sort().to_numpy())
        parts = parts.select(CODE, UNTIL, *self.spec.by, PANE, FROM, *self.spec.aggregates)
        if known is None:
            return parts
        known = known.filter(pl.col(UNTIL) > self.watermark_ms)
        return (
            pl.concat([known, parts])
            .group_by(*self.spec.by, PANE, FROM)
            .agg(*self.spec.merges, pl.col(UNTIL, CODE).first())
            .select(parts.columns)
        )

    def _changed(
        self, before_ms: int, parts: pl.DataFrame, totals: pl.DataFrame, rows: pl.DataFrame
    ) -> pl.DataFrame:
        """What to give out now; `totals` are complete for every window that `parts` touch."""
        touched = self._windows(parts)
        if self.spec.emit is Emit.FINAL:
            touched = touched.filter(pl.col(END) <= before_ms)
        known = self._windows(totals)
        if self.slide_ms < self.size_ms or touched.height < known.height:
            key = [*self.spec.by, START]
            known = known.join(touched.select(key).unique(), on=key, how="semi", nulls_equal=True)
        found = [self._merge(known)]
        if self.spec.emit is Emit.FINAL:
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

    def _windows(self, panes: pl.DataFrame) -> pl.DataFrame:
        """One row per pane and window it counts for."""
        if self.slide_ms == self.size_ms:
            return panes.with_columns(
                pl.col(PANE).alias(START), (pl.col(PANE) + self.size_ms).alias(END)
            )
        last = self._start(pl.col(PANE)) + 1
        starts = pl.int_ranges(pl.col(FROM), last, self.slide_ms).alias(START)
        return (
            panes.with_columns(starts)
            .explode(START)
            .with_columns((pl.col(START) + self.size_ms).alias(END))
        )

    def _merge(self, windows: pl.DataFrame) -> pl.DataFrame:
        if self.slide_ms == self.size_ms:
            return windows.select(self.spec.columns)  # one pane is one window
        merged = windows.group_by(*self.spec.by, START, END).agg(self.spec.merges)
        return merged.select(self.spec.columns)


def _floor(time: pl.Expr, step: int, offset: int) -> pl.Expr:
    return (time - offset).floordiv(step) * step + offset
