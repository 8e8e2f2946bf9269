"""Reads of a read model in ClickHouse, for the API: parameterised, limited, live version only.

Values never become SQL text: they travel as parameters (`{name:Type}`), and tables as parameters
of type `Identifier`. Everything is read with FINAL, so superseded and deleted rows never show.
"""

# ruff: noqa: S608 - columns come from the model, values are parameters

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import clickhouse_connect
import polars as pl

from sinks.drivers.clickhouse import ddl
from sinks.drivers.clickhouse.errors import MissingTable, translated
from streams.runtime.position import Position, applied
from streams.runtime.sink import ReadModel, Table
from streams.runtime.topic import Topic

LIVE_MS = 500
"""How long the number of the live version is believed."""


class ClickHouseReader:
    """The read side of one model. One instance serves any number of concurrent requests."""

    def __init__(
        self, model: ReadModel, url: str, *, timeout_s: int = 10, rows_max: int = 10_000
    ) -> None:
        """Nothing is sent before the first read, so an API starts without its store."""
        self.model = model
        self._tables = ddl.checked(model)
        self._url = url
        self._timeout_s = timeout_s
        self._client: Any = None
        self._limits = {
            "max_execution_time": timeout_s,
            "max_result_rows": rows_max,
            "result_overflow_mode": "throw",
            "output_format_arrow_string_as_string": 0,
        }
        self._version = 1
        self._until_s = 0.0
        self._looking = asyncio.Lock()

    async def close(self) -> None:
        """Release the connections."""
        if self._client is not None:
            await self._client.close()

    async def live_version(self) -> int:
        """The version that reads go to."""
        if time.monotonic() >= self._until_s:
            async with self._looking:
                if time.monotonic() >= self._until_s:
                    await self._look()
        return self._version

    async def query(self, sql: str, **parameters: Any) -> pl.DataFrame:
        """The result of a SELECT as a frame; strings come as String.

        `{name:Type}` stands for a parameter, `{<table>:Identifier} FINAL` for a table of the model:

            await reader.query(
                "SELECT campaign, sum(clicks) AS clicks FROM {windows:Identifier} FINAL "
                "WHERE start_ms >= {from_ms:Int64} GROUP BY campaign", from_ms=0)

        Raises `SinkRejected` past the limits of time or rows, `SinkUnavailable` without an answer.
        """
        frame = await self._arrow(sql, parameters)
        binary = [c for c, dtype in frame.schema.items() if dtype == pl.Binary]
        return frame.with_columns(pl.col(binary).cast(pl.String)) if binary else frame

    async def positions(self) -> dict[tuple[str, int], Position]:
        """Topic and log partition → the position that reads from now on are true for, at least;
        empty before anything is stored.
        """
        try:
            version = await self.live_version()
            frame = await self.query(
                "SELECT topic, partition, position FROM {positions:Identifier} FINAL",
                positions=ddl.positions(self.model.name, version),
            )
        except MissingTable:
            return {}
        return {(topic, at): Position.decode(raw) for topic, at, raw in frame.iter_rows()}

    async def position(self, topic: str, partition: int) -> Position | None:
        """The position of one log partition; None before its first write."""
        return (await self.positions()).get((topic, partition))

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset not folded yet; of those `topics` that deciders
        write, also of their command topics.
        """
        return applied(await self.positions(), *topics)

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of a bucket (by the values of its columns), of one or all log partitions:
        the columns of the table and `_partition`.
        """
        shape = self.model.table(table)
        if not isinstance(shape, Table) or set(bucket) != set(shape.bucket):
            raise KeyError(f"{table} is read by its bucket, not by {sorted(bucket)}")
        columns = {**shape.columns, "_partition": pl.Int32}
        where = [f"`{c}` = {{b{i}:{ddl.column_type(shape.key[c])}}}" for i, c in enumerate(bucket)]
        parameters = {f"b{i}": value for i, value in enumerate(bucket.values())}
        if partition is not None:
            where.append("_partition = {partition:Int32}")
            parameters["partition"] = partition
        sql = (
            f"SELECT {', '.join(f'`{c}`' for c in columns)} FROM {{{table}:Identifier}} FINAL "
            f"WHERE {' AND '.join(where) or '1'}"
        )
        return (await self._arrow(sql, parameters)).cast(pl.Schema(columns))

    async def _arrow(self, sql: str, parameters: Mapping[str, Any]) -> pl.DataFrame:
        version = await self.live_version()
        tables = {t.name: ddl.rows(self.model.name, t.name, version) for t in self._tables}
        with translated():
            found = await self._client.query_arrow(
                sql, parameters={**tables, **parameters}, settings=self._limits
            )
        return pl.DataFrame(pl.from_arrow(found))

    async def _look(self) -> None:
        until_s = time.monotonic() + LIVE_MS / 1000
        with translated():
            if self._client is None:
                self._client = await clickhouse_connect.get_async_client(
                    dsn=self._url,
                    autogenerate_session_id=False,
                    send_receive_timeout=self._timeout_s + 1,
                )
            found = await self._client.query(
                "SELECT argMax(version, seq) FROM {facts:Identifier} WHERE fact = 'live'",
                parameters={"facts": ddl.versions(self.model.name)},
            )
        self._version = int(found.result_rows[0][0]) or 1
        self._until_s = until_s
