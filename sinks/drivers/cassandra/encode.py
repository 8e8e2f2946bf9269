"""Columns as the bytes of Cassandra's protocol, made column by column.

The driver's own binding looks up the type of every value of every row (10 µs a row, the larger
part of what a writer spends); here a column of integers is turned at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any

import polars as pl
from cassandra.query import UNSET_VALUE, BatchStatement, BoundStatement

BIGINT_BYTES = 8

Values = Iterable[Any]
"""Bytes of each row, None for null, or the driver's mark for what is left unset."""


def lines(
    prepared: Any, columns: Sequence[pl.Series | int], *, unset: bool = False
) -> list[tuple[Any, ...]]:
    """The values of each row for a prepared statement, from its columns in the order of its
    parameters; an integer stands for the same value in all rows.

    `unset` leaves nulls out, where no older value has to be overwritten: Cassandra keeps a
    tombstone for every null that it is told.
    """
    types = [column.type for column in prepared.column_metadata]
    encoded = [
        _column(column, kind, prepared.protocol_version, unset=unset)
        for column, kind in zip(columns, types, strict=True)
    ]
    return list(zip(*encoded, strict=False))  # what stands for all rows has no end


def add(batch: BatchStatement, prepared: Any, rows: Iterable[tuple[Any, ...]]) -> None:
    """Add rows of `lines` to a batch."""
    bound = BoundStatement(prepared)
    for row in rows:
        bound.values = row
        batch.add(bound)


def _column(column: pl.Series | int, kind: Any, protocol: int, *, unset: bool) -> Values:
    if isinstance(column, int):
        return repeat(kind.serialize(column, protocol))
    if isinstance(column.dtype, pl.Datetime):
        column = column.to_physical()
    values = _values(column, kind, protocol)
    if column.null_count():
        missing = UNSET_VALUE if unset else None
        there = column.is_not_null().to_list()
        return [one if known else missing for one, known in zip(values, there, strict=True)]
    return values


def _values(column: pl.Series, kind: Any, protocol: int) -> Sequence[Any]:
    """The bytes of each value; anything where it is null."""
    match kind.typename:
        case "bigint":
            raw = column.cast(pl.Int64).fill_null(0).to_numpy().astype(">i8").tobytes()
            return [raw[at : at + BIGINT_BYTES] for at in range(0, len(raw), BIGINT_BYTES)]
        case "text" | "varchar" | "blob":
            return column.cast(pl.Binary).to_list()
    values = column.to_list()
    return [None if value is None else kind.serialize(value, protocol) for value in values]
