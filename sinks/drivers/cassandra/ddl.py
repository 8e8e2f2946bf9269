"""Tables of a read model in Cassandra: names, types and statements, for writer and reader.

Of all read models of a keyspace:

    versions    model → live; and per version: build, state, the lanes ("topic/partition") it has
    fences      build, topic, partition → position, stamp, nonce, chunks, sealed
    positions   build → topic, partition → the position that stored rows are true for
    journal     build, topic, partition → rows of the write that `fences` speaks of, in chunks

`versions` and `fences` are touched by lightweight transactions only, the others never: Cassandra
loses updates where the two are mixed on a row.

A **build** is one making of a version, `ads-windows/v2/1f3a9c2e`. Its token is random, so that a
version that is dropped and made again shares nothing with what late writers of the old one send.
Each build has, for every table of the model,

    ads_windows_clicks_v2_1f3a9c2e         ((_partition, bucket…), rest of the key…) → values
    ads_windows_clicks_v2_1f3a9c2e_times   (_partition) → time, rest of the bucket: what can expire

Integers are `bigint` (UInt64 `varint`), instants integers in their unit since 1970. Rows carry
timestamps that are no clock's, so compaction by time windows and TTLs do not fit these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import polars as pl

from streams.runtime.sink import ReadModel, Table

NAME_CHARS_MAX = 180
"""Cassandra makes folders of table names, at most 222 characters; a build's suffix is on top."""

_SHARED: Mapping[str, str] = {
    "versions": "model text, version int, live int static, build text, state text, "
    "lanes set<text>, PRIMARY KEY (model, version)",
    "fences": "build text, topic text, partition int, position text, stamp bigint, nonce text, "
    "chunks int, sealed boolean, PRIMARY KEY ((build, topic, partition))",
    "positions": "build text, topic text, partition int, position text, nonce text, "
    "PRIMARY KEY (build, topic, partition)",
    "journal": "build text, topic text, partition int, upto bigint, nonce text, chunk int, "
    "data blob, PRIMARY KEY ((build, topic, partition), upto, nonce, chunk)",
}

_SCALARS: Mapping[Any, str] = {
    pl.String: "text",
    pl.Binary: "blob",
    pl.Boolean: "boolean",
    pl.Float32: "float",
    pl.Float64: "double",
    pl.UInt64: "varint",
}


@dataclass(frozen=True)
class Build:
    """One making of a version of a model."""

    model: str
    version: int
    token: str

    @property
    def key(self) -> str:
        """What its rows in the shared tables are found by."""
        return f"{self.model}/v{self.version}/{self.token}"

    @property
    def suffix(self) -> str:
        """What the names of its tables end with."""
        return f"_v{self.version}_{self.token}"

    def rows(self, table: Table) -> str:
        """The name of the table that holds the rows."""
        return _plain(f"{self.model}_{table.name}") + self.suffix

    def times(self, table: Table) -> str:
        """The name of the table of what can expire."""
        return f"{self.rows(table)}_times"


def checked(model: ReadModel) -> tuple[Table, ...]:
    """The tables of the model; `TypeError` for rankings (a merge reads before it writes) and for
    names that cannot be table names.
    """
    tables: list[Table] = []
    for table in model.tables:
        if not isinstance(table, Table):
            raise TypeError(f"{model.name} {table.name}: Cassandra keeps no rankings, use redis")
        for name in (model.name, table.name, *table.columns):
            if not re.fullmatch(r"[a-zA-Z][a-zA-Z0-9_-]*", name):
                raise TypeError(f"{name!r} is no name for a table or column")
        if len(f"{model.name}_{table.name}") > NAME_CHARS_MAX:
            raise TypeError(f"{model.name} {table.name}: the name is too long for a table")
        tables.append(table)
    return tuple(tables)


def create_keyspace(keyspace: str, datacenter: str, replicas: int) -> str:
    """The statement for a keyspace that is there once in one datacenter."""
    return (
        f'CREATE KEYSPACE IF NOT EXISTS "{keyspace}" WITH replication = '
        f"{{'class': 'NetworkTopologyStrategy', '{datacenter}': {replicas}}}"
    )


def create_shared(keyspace: str) -> dict[str, str]:
    """Name → statement of the tables that all read models share."""
    return {name: _create(keyspace, name, columns) for name, columns in _SHARED.items()}


def create_build(keyspace: str, build: Build, tables: Iterable[Table]) -> list[str]:
    """The statements for the tables of a build."""
    made: list[str] = []
    for table in tables:
        columns = {"_partition": "int"} | {c: column_type(t) for c, t in table.columns.items()}
        bucket = ", ".join(f'"{c}"' for c in ("_partition", *table.bucket))
        key = ", ".join([f"({bucket})", *(f'"{c}"' for c in rest(table))])
        made.append(_create(keyspace, build.rows(table), f"{_declared(columns)}, {_primary(key)}"))
        if table.time is not None:
            bucket_columns = {c: columns[c] for c in ("_partition", *due(table))}
            key = ", ".join(f'"{c}"' for c in bucket_columns)
            made.append(
                _create(
                    keyspace, build.times(table), f"{_declared(bucket_columns)}, {_primary(key)}"
                )
            )
    return made


def rest(table: Table) -> list[str]:
    """The key columns below the bucket: what orders rows inside it."""
    return list(table.key)[len(table.bucket) :]


def due(table: Table) -> list[str]:
    """The columns of the bucket, time first."""
    return sorted(table.bucket, key=lambda column: column != table.time)


def column_type(dtype: Any) -> str:
    """The CQL type of a column."""
    if isinstance(dtype, pl.List):
        return f"frozen<list<{column_type(dtype.inner)}>>"
    return _SCALARS.get(dtype, "bigint")


def _create(keyspace: str, name: str, columns: str) -> str:
    """With an id of its own name: two workers that create it at once at two nodes create one
    table, where Cassandra would else give each node another.
    """
    return (
        f'CREATE TABLE IF NOT EXISTS $"{name}" ({columns}) '
        f"WITH id = {uuid5(NAMESPACE_URL, f'{keyspace}.{name}')}"
    )


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" {kind}' for name, kind in columns.items())


def _primary(key: str) -> str:
    return f"PRIMARY KEY ({key})"


def _plain(name: str) -> str:
    return name.replace("-", "_")
