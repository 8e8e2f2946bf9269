"""Reads of a read model in Cassandra, for the API. Writes nothing.

Every read is by partition key, at LOCAL_QUORUM, and goes to the live version, which is looked up
at most every `LIVE_MS`. A version should therefore be dropped only a second after another was
switched to. Within a bucket, rows stand in the order of the rest of the key, so a page is one
slice of every log partition, and its cursor is the key of its last row: it stays good over writes,
restarts and rebuilds.
"""

# ruff: noqa: S608 - columns come from the model, values are parameters

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from sinks.drivers.cassandra import ddl, since_ms, visible
from sinks.drivers.cassandra.ddl import Build
from sinks.drivers.cassandra.errors import translated
from sinks.drivers.cassandra.rows import frame, named
from sinks.drivers.cassandra.store import Row, Store, connect
from streams.runtime.position import Position, applied
from streams.runtime.settings import Cassandra
from streams.runtime.sink import ReadModel, SinkRejected, Table
from streams.runtime.topic import Topic

LIVE_MS = 500
"""How long the number of the live version and its partitions are believed."""


@dataclass(frozen=True)
class _Live:
    version: int
    build: Build | None
    """None before the version holds anything."""
    partitions: tuple[int, ...]
    since: Mapping[str, Mapping[int, int]]
    """Table → log partition → the time before which rows no longer count."""
    until_s: float


@dataclass(frozen=True)
class _Slice:
    """Rows of a bucket: those with these key values, beyond others, up to `limit`."""

    equal: Mapping[str, Any]
    limit: int
    beyond: Mapping[str, Any] = field(default_factory=dict)
    descending: bool = False

    def where(self, shape: Table) -> str:
        """What follows WHERE in a statement that takes `_partition`, then `values`."""
        cql = "".join(f' AND "{c}" = ?' for c in self.equal)
        if self.beyond:
            sign = "<" if self.descending else ">"
            cql += f" AND ({named(self.beyond)}) {sign} ({', '.join('?' * len(self.beyond))})"
        if self.descending and ddl.rest(shape):
            cql += " ORDER BY " + ", ".join(f'"{c}" DESC' for c in ddl.rest(shape))
        return f'"_partition" = ?{cql} LIMIT ?'

    def values(self, shape: Table) -> list[Any]:
        """The parameters behind `_partition`."""
        return [*_plain(self.equal, shape), *_plain(self.beyond, shape), self.limit]


class CassandraReader:
    """The read side of one model. One instance serves any number of concurrent requests."""

    def __init__(
        self,
        model: ReadModel,
        settings: Cassandra,
        *,
        timeout_s: float = 5.0,
        rows_max: int = 10_000,
    ) -> None:
        """Nothing is sent before the first read, so an API starts without its store."""
        self.model = model
        self._tables = {table.name: table for table in ddl.checked(model)}
        self._settings = settings
        self._timeout_s = timeout_s
        self._rows_max = rows_max
        self._store: Store | None = None
        self._live: _Live | None = None
        self._looking = asyncio.Lock()

    async def close(self) -> None:
        """Release the connections."""
        if self._store is not None:
            await asyncio.to_thread(self._store.close)

    async def live_version(self) -> int:
        """The version that reads go to."""
        return (await self._now()).version

    async def positions(self) -> dict[tuple[str, int], Position]:
        """Topic and log partition → the position that reads from now on are true for, at least."""
        now = await self._now()
        found = await self._positions(now.build)
        if not {partition for _, partition in found} <= set(now.partitions):
            self._live = None  # a new partition: reads from now on have to go there too
        return found

    async def position(self, topic: str, partition: int) -> Position | None:
        """The position of one log partition; None before its first write."""
        return (await self.positions()).get((topic, partition))

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset not folded yet; of those `topics` that deciders
        write, also of their command topics.
        """
        return applied(await self.positions(), *topics)

    async def get(
        self, table: str, key: Mapping[str, Any], partition: int | None = None
    ) -> dict[str, Any] | None:
        """The row with this key, of one log partition or of whichever has it; None without one."""
        shape = self._table(table)
        if set(key) != set(shape.key):
            raise KeyError(f"{table} has rows by {sorted(shape.key)}, not by {sorted(key)}")
        found = await self._read(shape, _Slice(key, 1), partition)
        return found.drop("_partition").row(0, named=True) if found.height else None

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of a bucket (by the values of its columns), of one or all log partitions:
        the columns of the table and `_partition`. Raises `SinkRejected` past `rows_max` rows.
        """
        shape = self._table(table)
        if set(bucket) != set(shape.bucket):
            raise KeyError(f"{table} is read by its bucket, not by {sorted(bucket)}")
        found = await self._read(shape, _Slice(bucket, self._rows_max + 1), partition)
        if found.height > self._rows_max:
            raise SinkRejected(f"{table}: more than {self._rows_max} rows, read it page by page")
        return found

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
        """The first `limit` rows whose key begins with `prefix` (the bucket and any columns that
        follow it), in key order, of one or all log partitions. `after` is the cursor: the values
        of the key columns behind the prefix, of the last row that is not wanted any more. Where
        several log partitions hold rows of one key, give `partition`, or a page may end inside it.
        """
        shape = self._table(table)
        columns = list(shape.key)
        if set(prefix) != set(columns[: len(prefix)]) or len(prefix) < len(shape.bucket):
            raise KeyError(f"{table} is read by a prefix of {columns}, not by {sorted(prefix)}")
        if not 0 < limit <= self._rows_max:
            raise SinkRejected(f"{table}: a page has 1 to {self._rows_max} rows, not {limit}")
        order = columns[len(prefix) :]
        beyond = dict(zip(order, after or (), strict=False))
        found = await self._read(
            shape, _Slice(prefix, limit, beyond, descending=descending), partition
        )
        return found.sort(*order, "_partition", descending=descending).head(limit)

    def _table(self, table: str) -> Table:
        if table not in self._tables:
            raise KeyError(f"{self.model.name} has {sorted(self._tables)}, not {table}")
        return self._tables[table]

    async def _read(self, shape: Table, part: _Slice, partition: int | None) -> pl.DataFrame:
        """Up to `limit` rows of every log partition asked, that have not expired."""
        now = await self._now()
        columns = {**shape.columns, "_partition": pl.Int32}
        if now.build is None:
            return pl.DataFrame(schema=columns)
        cql = f'SELECT {named(columns)} FROM $"{now.build.rows(shape)}" WHERE {part.where(shape)}'
        values = part.values(shape)
        asked = now.partitions if partition is None else (partition,)
        found = await asyncio.gather(*(self._ask(cql, at, *values) for at in asked))
        rows = frame([row for page in found for row in page], columns)
        return visible(rows, shape, dict(now.since.get(shape.name, {})))

    async def _now(self) -> _Live:
        if self._live is None or time.monotonic() >= self._live.until_s:
            async with self._looking:
                if self._live is None or time.monotonic() >= self._live.until_s:
                    self._live = await self._look()
        return self._live

    async def _look(self) -> _Live:
        until_s = time.monotonic() + LIVE_MS / 1000
        found = await self._ask(
            "SELECT live, version, build FROM $versions WHERE model = ?", self.model.name
        )
        version = next((live for live, _, _ in found if live is not None), 1)
        tokens = {number: token for _, number, token in found if token is not None}
        build = Build(self.model.name, version, tokens[version]) if version in tokens else None
        if build is None:
            until_s = 0.0  # the first write is seen at once, not when this look has aged
        positions = await self._positions(build)
        partitions = tuple(sorted({partition for _, partition in positions}))
        since = {name: since_ms(positions, name) for name in self._tables}
        return _Live(version, build, partitions, since, until_s)

    async def _positions(self, build: Build | None) -> dict[tuple[str, int], Position]:
        if build is None:
            return {}
        found = await self._ask(
            "SELECT topic, partition, position FROM $positions WHERE build = ?", build.key
        )
        return {(topic, at): Position.decode(raw) for topic, at, raw in found}

    async def _ask(self, cql: str, *values: Any) -> list[Row]:
        store = await self._connected()
        prepared = store.cached(cql) or await asyncio.to_thread(store.prepared, cql)
        statement = prepared.bind(values)
        rows: list[Row] = []
        with translated():
            future = store.session.execute_async(statement)
            while True:
                rows += await _answer(future)
                if not future.has_more_pages:
                    return rows
                future.clear_callbacks()
                future.start_fetching_next_page()

    async def _connected(self) -> Store:
        if self._store is None:
            self._store = await asyncio.to_thread(
                connect, self._settings, self._timeout_s, create=False
            )
        return self._store


async def _answer(future: Any) -> list[Row]:
    """The page that the driver's future brings, which it does in a thread of its own."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Row]] = loop.create_future()

    def came(rows: list[Row]) -> None:
        if not answer.done():
            answer.set_result(list(rows))

    def failed(error: Exception) -> None:
        if not answer.done():
            answer.set_exception(error)

    future.add_callbacks(
        lambda rows: loop.call_soon_threadsafe(came, rows),
        lambda error: loop.call_soon_threadsafe(failed, error),
    )
    return await answer


def _plain(values: Mapping[str, Any], shape: Table) -> list[Any]:
    """Key values as they are stored."""
    row = pl.DataFrame([dict(values)], schema={c: shape.key[c] for c in values})
    return [
        row[c].to_physical()[0] if isinstance(shape.key[c], pl.Datetime) else row[c][0]
        for c in values
    ]
