"""Rows as statements, and back as frames.

Rows of one Cassandra partition go in batches of their own, so that the server applies a batch as
one change. What is left over of small partitions is joined, up to what the server takes without
a warning (10 partitions, 5 KiB): a statement a row is many times slower.
"""

# ruff: noqa: S608 - names are checked when the sink is opened, values are parameters

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
from cassandra.query import BatchStatement, BatchType

from sinks.drivers.cassandra.blocks import Block, weights
from sinks.drivers.cassandra.encode import add, lines
from sinks.drivers.cassandra.fences import Lane
from sinks.drivers.cassandra.store import Row, Statement, Store
from streams.runtime.sink import Table

BATCH_ROWS = 150
BATCH_BYTES = 256_000
JOINED_PARTITIONS = 10
JOINED_BYTES = 3_000
_ROW_OVERHEAD_BYTES = 60


def statements(store: Store, lane: Lane, block: Block, stamp: int) -> Iterator[Statement]:
    """The batches that apply a block to a lane at a timestamp."""
    table, partition, name = block.table, lane.partition, lane.build.rows(block.table)
    columns = ["_partition", *table.columns]
    insert = (
        f'INSERT INTO $"{name}" ({named(columns)}) '
        f"VALUES ({', '.join('?' * len(columns))}) USING TIMESTAMP ?"
    )
    keys = ["_partition", *table.key]
    delete = f'DELETE FROM $"{name}" USING TIMESTAMP ? WHERE {_equal(keys)}'
    if block.deletes.height:
        frame = block.deletes.sort(table.bucket) if table.bucket else block.deletes
        prepared = store.prepared(delete)
        values = lines(prepared, [stamp, partition, *frame.iter_columns()])
        yield from _batched(prepared, frame, table.bucket, values)
    if block.upserts.height:
        frame = block.upserts.sort(table.bucket) if table.bucket else block.upserts
        prepared = store.prepared(insert)
        values = lines(prepared, [partition, *frame.iter_columns(), stamp], unset=table.append)
        yield from _batched(prepared, frame, table.bucket, values)


def due_statements(
    store: Store, lane: Lane, table: Table, buckets: pl.DataFrame, stamp: int
) -> Iterator[Statement]:
    """The batches that note buckets (frame of their columns, time first) as what can expire."""
    columns = ["_partition", *buckets.columns]
    insert = (
        f'INSERT INTO $"{lane.build.times(table)}" ({named(columns)}) '
        f"VALUES ({', '.join('?' * len(columns))}) USING TIMESTAMP ?"
    )
    prepared = store.prepared(insert)
    values = lines(prepared, [lane.partition, *buckets.iter_columns(), stamp])
    yield from _batched(prepared, buckets, (), values)


def frame(rows: Sequence[Row], columns: Mapping[str, Any]) -> pl.DataFrame:
    """The frame of rows that have these columns in this order."""
    plain = {
        c: pl.Int64 if isinstance(dtype, pl.Datetime) else dtype for c, dtype in columns.items()
    }
    return pl.DataFrame(rows, schema=plain, orient="row").cast(pl.Schema(columns))


def _batched(
    prepared: Any, frame: pl.DataFrame, bucket: Sequence[str], values: list[Row]
) -> Iterator[Statement]:
    sizes = (weights(frame) + _ROW_OVERHEAD_BYTES).to_list()
    runs = (
        frame.select(pl.struct(*bucket).rle().struct.field("len")).to_series().to_list()
        if bucket
        else [frame.height]
    )
    for first, end in cuts(runs, sizes):
        batch = BatchStatement(BatchType.UNLOGGED)
        add(batch, prepared, values[first:end])
        yield batch


def cuts(runs: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where batches begin and end. `runs` are numbers of rows that are stored together, one
    after the other; `sizes` are the bytes of every row.
    """
    first = at = partitions = taken = 0
    for rows in runs:
        size = sum(sizes[at : at + rows])
        if partitions and (partitions == JOINED_PARTITIONS or taken + size > JOINED_BYTES):
            yield first, at
            first, partitions, taken = at, 0, 0
        if size > JOINED_BYTES:
            yield from _own(at, at + rows, sizes)
            first = at + rows
        else:
            partitions, taken = partitions + 1, taken + size
        at += rows
    if partitions:
        yield first, at


def _own(first: int, end: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The batches of one partition's rows."""
    taken = 0
    for at in range(first, end):
        if at > first and (at - first == BATCH_ROWS or taken + sizes[at] > BATCH_BYTES):
            yield first, at
            first, taken = at, 0
        taken += sizes[at]
    yield first, end


def named(columns: Iterable[str]) -> str:
    """The columns as CQL has them."""
    return ", ".join(f'"{c}"' for c in columns)


def _equal(columns: Sequence[str]) -> str:
    return " AND ".join(f'"{c}" = ?' for c in columns)
