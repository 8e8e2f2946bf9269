"""A write as blocks: per table one frame in which a key stands once, as its last change left it."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from streams.runtime.sink import Delete, ReadModel, Table, Upsert, Write

ROWS_MAX = 250_000
"""Rows of one insert; a longer frame becomes several, always cut at the same places."""


def blocks(model: ReadModel, write: Write) -> Iterator[tuple[Table, int, pl.DataFrame]]:
    """(table, number of the block, rows with the driver's columns) of a checked write.

    All rows of a write have one `_version`, so ClickHouse could not order two changes of a key.
    """
    for table in model.tables:
        frames = [
            _frame(change)
            for change in write.changes
            if isinstance(change, Upsert | Delete) and change.table == table
        ]
        if not frames or not isinstance(table, Table):
            continue
        frame = pl.concat(frames, how="diagonal")
        if frame.height > 1 and not _once(table, write):
            frame = frame.unique(list(table.key), keep="last", maintain_order=True)
        for number, part in enumerate(frame.iter_slices(ROWS_MAX)):
            yield table, number, _stamped(part, table, write)


def _once(table: Table, write: Write) -> bool:
    """Whether no row of a write replaces another: a key comes twice at most with equal values."""
    changes = [c for c in write.changes if isinstance(c, Upsert | Delete) and c.table == table]
    return table.append and all(isinstance(change, Upsert) for change in changes)


def _frame(change: Upsert | Delete) -> pl.DataFrame:
    gone = isinstance(change, Delete)
    return change.rows.with_columns(pl.lit(gone).cast(pl.UInt8).alias("_deleted"))


def _stamped(part: pl.DataFrame, table: Table, write: Write) -> pl.DataFrame:
    missing = [
        pl.lit(None, dtype).alias(c) for c, dtype in table.values.items() if c not in part.columns
    ]
    lists = [
        pl.col(c).fill_null([]) for c, dtype in table.values.items() if isinstance(dtype, pl.List)
    ]
    return (
        part.with_columns(missing)
        .with_columns(lists)
        .with_columns(
            pl.lit(write.partition, pl.Int32).alias("_partition"),
            pl.lit(write.position.next_offset, pl.UInt64).alias("_version"),
        )
        .select(*table.columns, "_partition", "_version", "_deleted")
    )
