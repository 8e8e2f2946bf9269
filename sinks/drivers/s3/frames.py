"""Changes as frames, frames as Parquet. Pure.

Parquet with zstd and statistics, in row groups that a reader can fetch alone. Rows of an append
table stay in log order (so in event time, nearly); rows of other tables are sorted by key, which
begins with the bucket. Either way a span of time is a few neighbouring row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO

import polars as pl

from streams.runtime.sink import Delete, ReadModel, Table, Upsert, Write

DELETED = "_deleted"
OFFSET = "offset"
"""An Int64 key column of this name in an append table is taken for the row's log offset."""

ROW_GROUP_ROWS = 65_536
CUT = 2**19
"""Offsets whose rows end up in one object of an append table."""


def changed(model: ReadModel, write: Write) -> Iterator[tuple[Table, pl.DataFrame]]:
    """Per table of a checked write one frame in which a key stands once, as its last change left
    it: the table's columns and `_deleted`.
    """
    for table in model.tables:
        frames = [
            change.rows.with_columns(pl.lit(isinstance(change, Delete)).alias(DELETED))
            for change in write.changes
            if isinstance(change, Upsert | Delete) and change.table == table and len(change.rows)
        ]
        if frames and isinstance(table, Table):
            frame = pl.concat(frames, how="diagonal")
            missing = [pl.lit(None, t).alias(c) for c, t in table.values.items() if c not in frame]
            frame = frame.with_columns(missing).select(*table.columns, DELETED)
            yield table, ordered(newest(frame.lazy(), table).collect(), table)


def newest(rows: pl.LazyFrame, table: Table) -> pl.LazyFrame:
    """The last row of every key, tombstones too, in the order of the last ones."""
    return rows.unique(list(table.key), keep="last", maintain_order=True)


def ordered(rows: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The rows as they are stored."""
    if not table.append:
        return rows.sort(list(table.key))
    return rows.sort(OFFSET) if has_offset(table) else rows


def has_offset(table: Table) -> bool:
    """Whether the rows of an append table say where in the log they come from."""
    return table.append and table.key.get(OFFSET) == pl.Int64


def cuts(table: Table, rows: pl.DataFrame, first: int) -> list[tuple[int, pl.DataFrame]]:
    """The rows by multiples of the cut: exactly where rows know their offset, else all of the
    span in the one it begins in; other tables are not cut.
    """
    if not table.append:
        return [(0, rows)]
    if not has_offset(table):
        return [(first // CUT, rows)]
    parts = rows.with_columns((pl.col(OFFSET) // CUT).alias("_cut")).partition_by(
        "_cut", as_dict=True, maintain_order=True, include_key=False
    )
    return [(int(cut), part) for (cut,), part in parts.items()]


def span_of(table: Table, span: range, cut: int) -> range:
    """The part of a span that lies in a cut; all of it where rows do not know their offset."""
    if not has_offset(table):
        return span
    low, high = cut * CUT, (cut + 1) * CUT
    return range(*(min(max(at, low), high) for at in (span.start, span.stop)))


def encode(rows: pl.DataFrame) -> bytes:
    """The same rows give the same bytes, with one version of Polars."""
    out = BytesIO()
    rows.write_parquet(out, compression="zstd", statistics=True, row_group_size=ROW_GROUP_ROWS)
    return out.getvalue()


def decode(content: bytes) -> pl.DataFrame:
    """The inverse of `encode`."""
    return pl.read_parquet(BytesIO(content))


def ranges(rows: pl.DataFrame, table: Table) -> Mapping[str, tuple[int, int]]:
    """Smallest and largest value of the columns that a piece can be ruled out by."""
    found: dict[str, tuple[int, int]] = {}
    for column in ranged(table):
        values = rows[column].to_physical()
        if values.null_count() < len(values):
            found[column] = (int(values.min()), int(values.max()))  # type: ignore[arg-type]
    return found


def ranged(table: Table) -> Sequence[str]:
    """The columns that ranges are kept of."""
    return [
        column
        for column, dtype in table.columns.items()
        if isinstance(dtype, pl.Datetime) or dtype.is_integer()
    ]
