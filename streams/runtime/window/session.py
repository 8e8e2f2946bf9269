"""Session windows: rows of a key that follow each other within a gap.

A session is `[first event time, last event time + gap]`, both ends included: a row that falls on
the end still extends it. It is known by its start, which moves down when an earlier row arrives;
therefore a merge deletes the rows of *all* sessions it absorbs (rule C8).

**Exact without a row loop.** Taken one by one, a row joins the sessions it touches that are still
alive, that is, whose end plus the allowed lateness is beyond the row's own watermark. Over a whole
batch this is: sort the rows of a key by event time; rows j before i are *linked* iff

    t[j] >= max(t[i] - gap, watermark[i] - gap - lateness + 1)  =: bound[i]

(rows that are not late; whichever of the two came first). Sessions are the runs of linked rows, so
a border lies between k and k + 1 iff the least `bound` above k is greater than `t[k]`. A session
from earlier batches takes part as its first and its last event time. The proof is in
`tests/runtime/test_window_session.py`, with the row-by-row model it is tested against.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.position import NO_WATERMARK
from streams.runtime.runs import CODE, UNTIL, Runs, codes_of
from streams.runtime.watermark import milliseconds
from streams.runtime.window.update import END, START, Emit, Spec, Update

TIME = "_time"
LAST = "_last"
FIRST_OFFSET = "_first_offset"
SESSION = "_session"
BOUND = "_bound"
TOUCHED = "_touched"


@dataclass(frozen=True)
class SessionWindows:
    """Sessions by key. See `Windows`."""

    spec: Spec
    gap_ms: int
    watermark_ms: int = NO_WATERMARK
    sessions: Runs = field(default_factory=Runs)

    def __post_init__(self) -> None:
        """Refuse a gap that is not positive."""
        if self.gap_ms <= 0:
            raise ValueError(f"gap {self.gap_ms} ms must be positive")

    def add(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[SessionWindows, Update]:
        """Fold a batch; see `Windows.add`."""
        for aggregate in self.spec.aggregates.values():
            aggregate.check(rows.schema)
        if rows[self.spec.time].null_count():
            raise ValueError(f"{rows[self.spec.time].null_count()} rows without {self.spec.time}")
        times = milliseconds(rows[self.spec.time]).alias(TIME)
        on_time = times + (self.gap_ms + self.spec.allowed_lateness_ms) > rows[WATERMARK]
        live = rows.with_columns(times).filter(on_time)
        live = live.with_columns(codes_of(live, self.spec.by))
        known = self.sessions.take(live[CODE].unique().sort().to_numpy())
        if known is not None:
            known = known.filter(pl.col(UNTIL) > self.watermark_ms)
        merged, absorbed = self._merge(live, known)
        added = replace(
            self,
            watermark_ms=watermark_ms,
            sessions=self.sessions.put(merged.select(self._stored), self.watermark_ms),
        )
        update = Update(
            changed=added._changed(self.watermark_ms, merged, rows),
            deleted=added._deleted(self.watermark_ms, absorbed, rows),
            late=rows.filter(~on_time),
            open_from_offset=added._open_from(),
        )
        return added, update

    @property
    def _stored(self) -> list[str]:
        return [CODE, UNTIL, LAST, FIRST_OFFSET, *self.spec.columns]

    def provisional(self) -> pl.DataFrame | None:
        """Open sessions of `Emit.FINAL`, as they stand."""
        if self.spec.emit is Emit.UPDATE:
            return None
        found = self.sessions.scan(pl.col(END) > self.watermark_ms)
        return None if found is None else found.select(self.spec.columns)

    def _merge(
        self, live: pl.DataFrame, known: pl.DataFrame | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """All sessions of the keys in the batch, and the known ones with their new bounds."""
        of_rows, of_known = self._number(live, known)
        keys = [CODE, *self.spec.by]
        parts = (
            live.with_columns(pl.Series(SESSION, of_rows))
            .group_by(SESSION)
            .agg(
                *(pl.col(key).first() for key in keys),
                pl.col(TIME).min().alias(START),
                pl.col(TIME).max().alias(LAST),
                pl.col(OFFSET).min().alias(FIRST_OFFSET),
                *self.spec.partials,
                pl.lit(value=True).alias(TOUCHED),
            )
        )
        if known is None:
            return self._ends(parts), None
        known = known.with_columns(pl.Series(SESSION, of_known), pl.lit(value=False).alias(TOUCHED))
        both = pl.concat([parts, known.select(parts.columns)])
        merged = self._ends(
            both.group_by(SESSION).agg(
                *(pl.col(key).first() for key in keys),
                pl.col(START).min(),
                pl.col(LAST).max(),
                pl.col(FIRST_OFFSET).min(),
                *self.spec.merges,
                pl.col(TOUCHED).any(),
            )
        )
        now = merged.select(SESSION, pl.col(START).alias("_start"), pl.col(END).alias("_end"))
        absorbed = known.select(*self.spec.by, START, END, SESSION).join(now, on=SESSION)
        return merged, absorbed

    def _number(
        self, live: pl.DataFrame, known: pl.DataFrame | None
    ) -> tuple[pl.Series, pl.Series]:
        """A session number for every live row and every known session."""
        reach = self.gap_ms + self.spec.allowed_lateness_ms
        keys = [CODE, *self.spec.by]
        bound = pl.max_horizontal(pl.col(TIME) - self.gap_ms, pl.col(WATERMARK) - reach + 1).alias(
            BOUND
        )
        elements = [live.select(*keys, TIME, bound)]
        if known is not None:
            start = pl.col(START)
            elements += [
                known.select(*keys, start.alias(TIME), (start - self.gap_ms).alias(BOUND)),
                known.select(*keys, pl.col(LAST).alias(TIME), start.alias(BOUND)),
            ]
        line = pl.concat(elements).with_row_index("_n").sort(*keys, TIME)
        new_key = pl.any_horizontal(pl.col(key).ne_missing(pl.col(key).shift()) for key in keys)
        line = line.select("_n", TIME, BOUND, new_key.cum_sum().alias("_key"))
        above = pl.col(BOUND).cum_min(reverse=True).shift(-1).over("_key")
        border = (above > pl.col(TIME)).fill_null(value=True).shift(1, fill_value=True)
        numbers = np.empty(line.height, dtype=np.uint32)
        numbers[line["_n"].to_numpy()] = line.select(border.cum_sum()).to_series().to_numpy()
        of_known = 0 if known is None else known.height
        return (
            pl.Series(numbers[: live.height]),
            pl.Series(numbers[live.height : live.height + of_known]),
        )

    def _ends(self, sessions: pl.DataFrame) -> pl.DataFrame:
        end = pl.col(LAST) + self.gap_ms
        return sessions.with_columns(
            end.alias(END), (end + self.spec.allowed_lateness_ms).alias(UNTIL)
        )

    def _changed(self, before_ms: int, merged: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
        touched = merged.filter(pl.col(TOUCHED))
        if self.spec.emit is Emit.UPDATE:
            return touched.select(self.spec.columns) if touched.height else self.spec.empty(rows)
        found = [touched.filter(pl.col(END) <= before_ms)]
        closed = pl.col(END).is_between(before_ms, self.watermark_ms, closed="right")
        newly = self.sessions.scan(closed)
        if newly is not None:
            found.append(newly)
        frames = [frame.select(self.spec.columns) for frame in found if frame.height]
        return pl.concat(frames) if frames else self.spec.empty(rows)

    def _deleted(
        self, before_ms: int, absorbed: pl.DataFrame | None, rows: pl.DataFrame
    ) -> pl.DataFrame:
        """Stored rows that are no more: absorbed sessions, and final ones that are open again.

        A re-opened session is withdrawn until it closes, not rewritten as an early result: whether
        it was ever closed in between depends on batch borders, what is closed now does not.
        """
        key = [*self.spec.by, START]
        if absorbed is None:
            return rows.clear().select(*self.spec.by, pl.lit(0, pl.Int64).alias(START))
        gone = pl.col(START) != pl.col("_start")
        if self.spec.emit is Emit.FINAL:
            gone |= (pl.col(END) <= before_ms) & (pl.col("_end") > self.watermark_ms)
        return absorbed.filter(gone).select(key)

    def _open_from(self) -> int | None:
        """The lowest offset in a session that is alive.

        An older version of a session never begins at a lower offset than the newest one and never
        outlives it, so there is no need to tell them apart.
        """
        alive = pl.col(UNTIL) > self.watermark_ms
        lowest = [
            run.rows.select(pl.col(FIRST_OFFSET).filter(alive).min()).item()
            for run in self.sessions.runs
            if run.until_last > self.watermark_ms
        ]
        return min((offset for offset in lowest if offset is not None), default=None)
