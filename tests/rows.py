"""Reads of rows in memory, with the limits of the stores' own reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from sinks.drivers.memory import MemorySink
from streams.runtime import position
from streams.runtime.position import Position
from streams.runtime.sink import Table
from streams.runtime.topic import Topic


class MemoryRows:
    """`sinks.readers.rows.Rows` over version 1 of a sink in memory."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    async def get(
        self, table: str, key: Mapping[str, Any], partition: int | None = None
    ) -> dict[str, Any] | None:
        assert set(key) == set(self._shape(table).key)
        found = self._rows(table, key, partition).drop("_partition")
        return found.row(0, named=True) if found.height else None

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        assert set(bucket) == set(self._shape(table).bucket)
        return self._rows(table, bucket, partition)

    async def page(
        self,
        table: str,
        prefix: Mapping[str, Any],
        limit: int,
        *,
        after: Sequence[Any] | None = None,
        descending: bool = False,
        partition: int | None = None,
    ) -> pl.DataFrame:
        shape = self._shape(table)
        columns = list(shape.key)
        assert set(prefix) == set(columns[: len(prefix)])
        assert len(prefix) >= len(shape.bucket)
        order = columns[len(prefix) :]
        rows = self._rows(table, prefix, partition)
        rows = rows.sort(*order, "_partition", descending=descending)
        if after is not None:
            end = tuple(after)
            keys = rows.select(order).rows()
            beyond = [key < end if descending else key > end for key in keys]
            rows = rows.filter(pl.Series(beyond, dtype=pl.Boolean))
        return rows.head(limit)

    async def positions(self) -> dict[tuple[str, int], Position]:
        return self._sink.positions(1)

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        return position.applied(self._sink.positions(1), *topics)

    async def close(self) -> None:
        """Nothing is held."""

    def _shape(self, table: str) -> Table:
        shape = self._sink.model.table(table)
        assert isinstance(shape, Table)
        return shape

    def _rows(self, table: str, equal: Mapping[str, Any], partition: int | None) -> pl.DataFrame:
        columns = {**self._shape(table).columns, "_partition": pl.Int32}
        rows = pl.concat([pl.DataFrame(schema=columns), *self._sink.rows(1, table, partition)])
        return rows.filter(*(pl.col(name) == value for name, value in equal.items()))
