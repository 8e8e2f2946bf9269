"""Tables of a read model in ClickHouse: names, types and statements, for writer and reader.

A model `ads-windows` has

    ads_windows_versions         facts in order: prepared, sealed, open, live, dropped
    ads_windows_positions_v2     the position of every log partition; the largest offset wins
    ads_windows_<table>_v2       rows, plus `_partition`, `_version` (the offset they are folded up
                                 to; the newest wins, on a tie the last inserted) and `_deleted`
    ads_windows_<table>          a view on the live version, for people and Grafana

Whoever reads a table itself reads it with FINAL, as the view does. For retention on the server's
side there is `ALTER TABLE … MODIFY TTL toDateTime(intDiv(start_ms, 1000)) + INTERVAL 30 DAY`.
"""

# ruff: noqa: S608 - names are checked by `checked`

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import polars as pl

from streams.runtime.sink import ReadModel, Table

DURABLE = "fsync_after_insert = 1, fsync_part_directory = 1"
"""Without it a power cut can keep a position and lose the rows below it."""

WINDOW = 10_000
"""Tokens of inserts that are remembered, per table."""

_SCALARS: Mapping[Any, str] = {
    pl.String: "String",
    pl.Binary: "String",
    pl.Boolean: "Bool",
    pl.Float32: "Float32",
    pl.Float64: "Float64",
    pl.Int8: "Int8",
    pl.Int16: "Int16",
    pl.Int32: "Int32",
    pl.Int64: "Int64",
    pl.UInt8: "UInt8",
    pl.UInt16: "UInt16",
    pl.UInt32: "UInt32",
    pl.UInt64: "UInt64",
}


def checked(model: ReadModel) -> tuple[Table, ...]:
    """The tables of the model; `TypeError` for rankings (a merge is no absolute row) and for
    names that cannot be table names or are taken.
    """
    tables: list[Table] = []
    for table in model.tables:
        if not isinstance(table, Table):
            raise TypeError(f"{model.name} {table.name}: ClickHouse keeps no rankings, use redis")
        if table.name in ("versions", "positions"):
            raise TypeError(f"{model.name}: {table.name} is a table of the driver")
        for name in (model.name, table.name, *table.columns):
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]*", name):
                raise TypeError(f"{name!r} is no name for a table or column")
        tables.append(table)
    return tuple(tables)


def mark(model: str) -> str:
    """The comment on every table of a model, by which `drop` finds also tables of old code."""
    return f"headrace {model}"


def versions(model: str) -> str:
    """Name of the table of facts about versions."""
    return f"{_plain(model)}_versions"


def positions(model: str, version: int) -> str:
    """Name of the table of positions."""
    return f"{_plain(model)}_positions_v{version}"


def rows(model: str, table: str, version: int) -> str:
    """Name of the table that holds the rows of a version."""
    return f"{view(model, table)}_v{version}"


def view(model: str, table: str) -> str:
    """Name of the view on the live version."""
    return f"{_plain(model)}_{_plain(table)}"


def create_versions(model: str) -> str:
    """The statement for the table of facts."""
    return (
        f"CREATE TABLE IF NOT EXISTS {versions(model)} "
        "(seq UInt64, version UInt32, fact LowCardinality(String)) "
        f"ENGINE = MergeTree ORDER BY seq SETTINGS {DURABLE}"
    )


def create_positions(model: str, version: int) -> str:
    """The statement for the positions of a version."""
    return (
        f"CREATE TABLE IF NOT EXISTS {positions(model, version)} "
        "(topic String, partition Int32, next_offset UInt64, position String) "
        "ENGINE = ReplacingMergeTree(next_offset) ORDER BY (topic, partition) "
        f"SETTINGS {DURABLE} COMMENT '{mark(model)}'"
    )


def create_rows(model: str, table: Table, version: int) -> str:
    """The statement for one table of a version."""
    columns = [f"`{c}` {column_type(dtype)}" for c, dtype in table.key.items()]
    columns += [f"`{c}` {_nullable(dtype)}" for c, dtype in table.values.items()]
    columns += ["_partition Int32", "_version UInt64", "_deleted UInt8"]
    columns += [_index(column, kind) for column, kind in table.indexes.items()]
    order = ", ".join([*(f"`{c}`" for c in table.key), "_partition"])
    return (
        f"CREATE TABLE IF NOT EXISTS {rows(model, table.name, version)} ({', '.join(columns)}) "
        f"ENGINE = ReplacingMergeTree(_version, _deleted) ORDER BY ({order}) "
        f"SETTINGS {DURABLE}, non_replicated_deduplication_window = {WINDOW} "
        f"COMMENT '{mark(model)}'"
    )


def create_view(model: str, table: Table, version: int) -> str:
    """The statement that points people at a version."""
    columns = ", ".join([*(f"`{c}`" for c in table.columns), "_partition"])
    return (
        f"CREATE OR REPLACE VIEW {view(model, table.name)} AS "
        f"SELECT {columns} FROM {rows(model, table.name, version)} FINAL"
    )


def _plain(name: str) -> str:
    return name.replace("-", "_")


def column_type(dtype: Any) -> str:
    """The type of a key column."""
    if isinstance(dtype, pl.List):
        return f"Array({column_type(dtype.inner)})"
    if isinstance(dtype, pl.Datetime):
        return f"DateTime64({3 if dtype.time_unit == 'ms' else 6}, 'UTC')"
    return _SCALARS[dtype]


def _index(column: str, kind: str) -> str:
    """An index that FINAL may use, since rows with one key have equal values (`append`)."""
    if kind == "text":
        return f"INDEX text_{column} lower(`{column}`) TYPE text(tokenizer = ngrams(3))"
    return f"INDEX equal_{column} `{column}` TYPE bloom_filter(0.01) GRANULARITY 1"


def _nullable(dtype: Any) -> str:
    return column_type(dtype) if isinstance(dtype, pl.List) else f"Nullable({column_type(dtype)})"
