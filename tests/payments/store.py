"""Books in memory: the fold over events, and a reader over what it stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schemas.payments.events import EVENTS
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.payments import BOOKS
from streams.payments import SYSTEM
from streams.runtime.kafka import partition_of
from streams.runtime.position import Position
from streams.runtime.sink import Table
from streams.runtime.testing import Harness

(PROJECTION,) = SYSTEM.projections


class MemoryRows:
    """A reader of whole buckets, as the stores have one."""

    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

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
        shape = BOOKS.table(table)
        assert isinstance(shape, Table)
        assert set(shape.bucket) <= set(prefix) <= set(shape.key)
        behind = [name for name in shape.key if name not in prefix]
        empty = pl.DataFrame(schema={**shape.columns, "_partition": pl.Int32})
        rows = pl.concat([empty, *self._sink.rows(1, table, partition)])
        rows = rows.filter(*(pl.col(name) == value for name, value in prefix.items()))
        if behind:
            rows = rows.sort(behind, descending=descending)
        if after is not None:
            keys = rows.select(behind).rows()
            rows = rows.filter([key > tuple(after) for key in keys])
        return rows.head(limit)

    async def positions(self) -> Mapping[tuple[str, int], Position]:
        return self._sink.positions(1)

    async def close(self) -> None:
        """Nothing is held."""


def sink() -> MemorySink:
    """An empty store."""
    return MemorySink(BOOKS, MemoryStore())


def stored(log: Sequence[tuple[int, Any]], into: MemorySink | None = None) -> MemoryRows:
    """The books of a log of one book, or of books that share a partition."""
    into = into or sink()
    harness = Harness(PROJECTION, into, partition=partition_of("main", EVENTS.partitions))
    harness.send(*(row for _, row in log))
    harness.run()
    return MemoryRows(into)
