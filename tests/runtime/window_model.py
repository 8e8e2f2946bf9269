"""Windows row by row, as slow and as plain as possible: what the vectorised ones must equal."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import polars as pl
from hypothesis import strategies as st

from streams.runtime.position import NO_WATERMARK
from streams.runtime.watermark import watermarks
from streams.runtime.window import Count, Emit, Max, Min, Spec, Sum, Windows

AGGREGATES = {"n": Count(), "total": Sum("v"), "least": Min("v"), "most": Max("v")}


@dataclass(frozen=True)
class Row:
    offset: int
    key: str
    t: int
    v: int
    watermark: int


@dataclass
class Window:
    key: str
    start: int
    end: int
    rows: list[Row]

    @property
    def stored(self) -> tuple[int, int, int, int, int]:
        values = [row.v for row in self.rows]
        return (self.end, len(values), sum(values), min(values), max(values))


Table = dict[tuple[str, int], tuple[int, int, int, int, int]]


@dataclass
class Model:
    """One partition. `slide` 0 is a session with gap `size`."""

    size: int
    slide: int
    offset: int
    lateness: int
    emit: Emit
    table: Table = field(default_factory=dict)
    late: list[int] = field(default_factory=list)
    alive: list[Window] = field(default_factory=list)

    def row(self, row: Row, watermark_after: int) -> None:
        self.alive = [w for w in self.alive if w.end + self.lateness > row.watermark]
        touched = self._session(row) if self.slide == 0 else self._panes(row)
        if not touched:
            self.late.append(row.offset)
        self._store(touched, row.watermark, watermark_after)

    def _panes(self, row: Row) -> list[Window]:
        first = (row.t - self.offset) // self.slide * self.slide + self.offset
        touched = []
        for start in range(first, row.t - self.size, -self.slide):
            if start + self.size + self.lateness <= row.watermark:
                continue
            found = [w for w in self.alive if (w.key, w.start) == (row.key, start)]
            window = found[0] if found else Window(row.key, start, start + self.size, [])
            if not found:
                self.alive.append(window)
            window.rows.append(row)
            touched.append(window)
        return touched

    def _session(self, row: Row) -> list[Window]:
        if row.t + self.size + self.lateness <= row.watermark:
            return []
        hit = [
            w
            for w in self.alive
            if w.key == row.key and w.start <= row.t + self.size and row.t <= w.end
        ]
        window = Window(
            row.key,
            min([row.t, *(w.start for w in hit)]),
            max([row.t + self.size, *(w.end for w in hit)]),
            [row, *(r for w in hit for r in w.rows)],
        )
        for w in hit:
            self.alive.remove(w)
            self.table.pop((w.key, w.start), None)
        self.alive.append(window)
        return [window]

    def _store(self, touched: list[Window], before: int, after: int) -> None:
        for w in self.alive:
            new = any(w is t for t in touched)
            closing = before < w.end <= after
            final = closing or (new and w.end <= after)
            if new if self.emit is Emit.UPDATE else final:
                self.table[w.key, w.start] = w.stored


def spec(emit: Emit, lateness: int) -> Spec:
    return Spec(("key",), "t", AGGREGATES, emit, lateness)


def log(rows: list[tuple[str, int, int]], bound: int, gaps: int = 0) -> tuple[list[Row], int]:
    """Rows with offsets and watermarks, and the watermark after them."""
    import numpy as np

    times = np.array([t for _, t, _ in rows], dtype=np.int64)
    before, after = watermarks(times, NO_WATERMARK, bound)
    return [
        Row(n * (gaps + 1), key, t, v, int(w))
        for n, ((key, t, v), w) in enumerate(zip(rows, before, strict=True))
    ], after


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "key": [r.key for r in rows],
            "t": [r.t for r in rows],
            "v": [r.v for r in rows],
            "_offset": [r.offset for r in rows],
            "_watermark": [r.watermark for r in rows],
        },
        schema={
            "key": pl.String,
            "t": pl.Int64,
            "v": pl.Int64,
            "_offset": pl.Int64,
            "_watermark": pl.Int64,
        },
    )


def play(
    windows: Windows, rows: list[Row], after: int, cuts: list[int]
) -> tuple[Windows, Table, list[int]]:
    """Fold `rows`, cut before each index in `cuts`; the stored table and the late offsets."""
    table: Table = {}
    late: list[int] = []
    borders = sorted({0, len(rows), *(cut for cut in cuts if 0 < cut < len(rows))})
    for a, b in pairwise(borders):
        until = rows[b].watermark if b < len(rows) else after
        windows, update = windows.add(frame(rows[a:b]), until)
        apply(table, update.deleted, update.changed)
        late += update.late["_offset"].to_list()
    return windows, table, late


def apply(table: Table, deleted: pl.DataFrame, changed: pl.DataFrame) -> None:
    for key in deleted.iter_rows():
        table.pop(key, None)
    for key, start, *values in changed.iter_rows():
        table[key, start] = tuple(values)


ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-5, 40), st.integers(-3, 9)),
    min_size=1,
    max_size=24,
)
NEARLY_SORTED = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-6, 4), st.integers(-3, 9)),
    min_size=1,
    max_size=24,
).map(lambda rows: [(k, 2 * n + jitter, v) for n, (k, jitter, v) in enumerate(rows)])
LOGS = st.one_of(ROWS, NEARLY_SORTED)
CUTS = st.lists(st.integers(1, 24), max_size=6)
EMITS = st.sampled_from(list(Emit))
