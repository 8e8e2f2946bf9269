"""Read models in ClickHouse, over HTTP: rows that say what they are folded up to.

ClickHouse has no transaction over two tables and no compare-and-set, so the fence is made of
parts (research: protocol rule C3):

1. `write` looks at the stored position first and refuses when it is not the expected one.
2. Rows are durable before the position is; each row carries the offset it is folded up to, and
   the newest wins. A crash in between leaves rows that are ahead of the position; the worker
   folds that range again, writes the same absolute rows, and nothing is counted twice.
3. The statement that stores the position looks again. A writer that passed the first look and
   then slept cannot move it, and its rows are superseded, or what the live writer arrives at.
4. The insert token is the span, never the content: the same span sent again is dropped whole,
   also for materialized views.

What this asks of a fold: absolute rows (`Upsert`, `Delete`) that depend on the log alone. Rows may
be ahead of the position (`atomic = False`), so no fold may start from them.
"""

# ruff: noqa: S608 - names are checked when the sink is opened, values are parameters or integers

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import clickhouse_connect
import polars as pl

from sinks.drivers.check import check
from sinks.drivers.clickhouse import ddl
from sinks.drivers.clickhouse.blocks import blocks
from sinks.drivers.clickhouse.errors import MissingTable, translated
from sinks.drivers.rows import supported
from streams.runtime.position import Position
from streams.runtime.sink import FenceRefused, ReadModel, Write

Client = Any
"""`clickhouse_connect.driver.client.Client`, which has no types of its own."""

INSERT = {
    "async_insert": 0,
    "wait_end_of_query": 1,
    "max_insert_threads": 1,
    # A block holds a key once, so there is nothing to merge in it (a sixth of the server's time).
    "optimize_on_insert": 0,
    "insert_deduplicate": 1,
}
EXPIRY_INTERVAL_S = 60.0
"""Deleting rewrites parts, so expired rows of a partition are deleted at most this often."""


def connect(url: str, timeout_s: float = 60.0) -> Client:
    """A client of the server at `http://user:password@host:port/database`."""
    with translated():
        return clickhouse_connect.get_client(
            dsn=url,
            autogenerate_session_id=False,
            query_retries=0,
            connect_timeout=10,
            send_receive_timeout=timeout_s,
        )


class ClickHouseSink:
    """One writer of one read model; see `streams.runtime.sink.Sink`.

    Raises `TypeError` for a model with rankings.
    """

    atomic = False

    def __init__(
        self, model: ReadModel, client: Client, expiry_interval_s: float = EXPIRY_INTERVAL_S
    ) -> None:
        supported(model)
        self._tables = ddl.checked(model)
        self.model = model
        self._client = client
        self._expiry_interval_s = expiry_interval_s
        self._expired_at: dict[tuple[int, str, int], float] = {}
        self._command(ddl.create_versions(model.name))

    def live_version(self) -> int:
        found = self._query(
            f"SELECT argMax(version, seq) FROM {ddl.versions(self.model.name)} WHERE fact = 'live'"
        )
        return int(found[0][0]) or 1

    def prepare(self, version: int) -> None:
        name = self.model.name
        self._command(ddl.create_positions(name, version))
        for table in self._tables:
            self._command(ddl.create_rows(name, table, version))
        if self._state(version) in ("", "dropped"):
            self._say(version, "prepared")
        if self.live_version() == version:
            self._point_views(version)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        try:
            return self._stored(version, topic, partition)
        except MissingTable:
            return None

    def write(self, version: int, write: Write) -> None:
        check(self.model, write)
        where = f"{self.model.name} v{version} {write.topic}/{write.partition}"
        try:
            stored = self._stored(version, write.topic, write.partition)
        except MissingTable:
            if write.expected is not None:
                raise FenceRefused(f"{where}: the version is gone") from None
            self.prepare(version)
            stored = None
        if stored != write.expected:
            raise FenceRefused(f"{where}: the position has moved")
        for table, number, rows in blocks(self.model, write):
            name = ddl.rows(self.model.name, table.name, version)
            self._insert(name, rows, _token(where, write, number))
        if write.position != write.expected:
            self._move(version, write)
            if self._stored(version, write.topic, write.partition) != write.position:
                raise FenceRefused(f"{where}: the position has moved meanwhile")
        self._expire(version, write)

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Rows ahead of the position do not show: a write that was refused at its last step, by a
        seal or another writer, leaves them until their range is folded again. PREWHERE takes them
        out before FINAL picks the newest; where a merge was faster, the row they replaced is gone.
        """
        shape = {**self.model.table(table).columns, "_partition": pl.Int32}
        time = self.model.table(table).time
        upto: dict[int, int] = {}
        since: dict[int, int] = {}
        for (_, at), position in self.positions(version).items():
            upto[at] = max(position.next_offset, upto.get(at, 0))
            since[at] = max(position.expired_ms.get(table, -(2**63)), since.get(at, -(2**63)))
        sql = (
            f"SELECT {', '.join(f'`{c}`' for c in shape)} "
            f"FROM {ddl.rows(self.model.name, table, version)} FINAL "
            "PREWHERE _version <= "
            "transform(_partition, {partitions:Array(Int32)}, {offsets:Array(UInt64)}, 0) "
            "WHERE ({partition:Nullable(Int32)} IS NULL "
            "OR _partition = {partition:Nullable(Int32)})"
        )
        if time is not None:
            sql += (
                f" AND `{time}` >= "
                "transform(_partition, {partitions:Array(Int32)}, {since:Array(Int64)}, 0)"
            )
        parameters = {
            "partition": partition,
            "since": list(since.values()),
            "partitions": list(upto),
            "offsets": list(upto.values()),
        }
        if not upto:
            return
        settings = {"output_format_arrow_string_as_string": 0}
        try:
            with (
                translated(),
                self._client.query_arrow_stream(
                    sql, parameters=parameters, settings=settings
                ) as batches,
            ):
                for batch in batches:
                    frame = pl.from_arrow(batch)
                    yield pl.DataFrame(frame).cast(pl.Schema(shape))
        except MissingTable:
            return

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        table = ddl.positions(self.model.name, version)
        try:
            found = self._query(f"SELECT topic, partition, position FROM {table} FINAL")
        except MissingTable:
            return {}
        return {(topic, partition): Position.decode(raw) for topic, partition, raw in found}

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        """The fact stops polite writers; the constraint stops those that looked before it."""
        self.prepare(version)
        self._say(version, "sealed")
        for name in self._names(version):
            self._command(f"ALTER TABLE {name} ADD CONSTRAINT IF NOT EXISTS sealed CHECK 0")
        return self.positions(version)

    def unseal(self, version: int) -> None:
        for name in self._names(version):
            self._command(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS sealed")
        self._say(version, "open")

    def switch(self, version: int) -> None:
        """One row for our readers; then the views, one by one, for people."""
        self.prepare(version)
        self._say(version, "live")
        self._point_views(version)

    def versions(self) -> list[int]:
        facts = ddl.versions(self.model.name)
        found = self._query(
            f"SELECT version FROM {facts} WHERE fact != 'live' "
            "GROUP BY version HAVING argMax(fact, seq) != 'dropped' ORDER BY version"
        )
        return [int(version) for (version,) in found]

    def drop(self, version: int) -> None:
        if version == self.live_version():
            raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
        if self._state(version) in ("", "dropped"):
            return
        self._say(version, "sealed")
        for name in self._names(version):
            self._command(f"DROP TABLE IF EXISTS {name} SYNC")
        self._say(version, "dropped")

    def close(self) -> None:
        self._client.close()

    def _stored(self, version: int, topic: str, partition: int) -> Position | None:
        """The position, by one query together with the seal."""
        facts, table = ddl.versions(self.model.name), ddl.positions(self.model.name, version)
        found = self._query(
            f"SELECT argMax(fact, seq), (SELECT position FROM {table} FINAL "
            "WHERE topic = {topic:String} AND partition = {partition:Int32}) "
            f"FROM {facts} WHERE version = {{version:UInt32}} AND fact != 'live'",
            topic=topic,
            partition=partition,
            version=version,
        )
        state, raw = found[0]
        if state == "sealed":
            raise FenceRefused(f"{self.model.name} v{version} is sealed")
        return Position.decode(raw) if raw else None

    def _move(self, version: int, write: Write) -> None:
        """Insert the new position where the expected one is still stored: the second look."""
        table = ddl.positions(self.model.name, version)
        at = "topic = {topic:String} AND partition = {partition:Int32}"
        self._command(
            f"INSERT INTO {table} (topic, partition, next_offset, position) "
            "SELECT {topic:String}, {partition:Int32}, {next_offset:UInt64}, {position:String} "
            f"WHERE ifNull((SELECT position FROM {table} FINAL WHERE {at}), '') = "
            "{expected:String}",
            topic=write.topic,
            partition=write.partition,
            next_offset=write.position.next_offset,
            position=write.position.encode().decode(),
            expected="" if write.expected is None else write.expected.encode().decode(),
        )

    def _state(self, version: int) -> str:
        facts = ddl.versions(self.model.name)
        found = self._query(
            f"SELECT argMax(fact, seq) FROM {facts} "
            "WHERE version = {version:UInt32} AND fact != 'live'",
            version=version,
        )
        return str(found[0][0])

    def _say(self, version: int, fact: str) -> None:
        table = ddl.versions(self.model.name)
        self._command(
            f"INSERT INTO {table} SELECT max(seq) + 1, {int(version)}, '{fact}' FROM {table}"
        )

    def _names(self, version: int) -> list[str]:
        """All tables of a version, also those that the code no longer knows."""
        found = self._query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() "
            "AND comment = {comment:String} AND endsWith(name, {suffix:String})",
            comment=ddl.mark(self.model.name),
            suffix=f"_v{version}",
        )
        return [f"`{name}`" for (name,) in found]

    def _point_views(self, version: int) -> None:
        for table in self._tables:
            self._command(ddl.create_view(self.model.name, table, version))

    def _expire(self, version: int, write: Write) -> None:
        for table, cutoff_ms in write.expire_before_ms.items():
            at = (version, table, write.partition)
            now = time.monotonic()
            if now - self._expired_at.get(at, -self._expiry_interval_s) < self._expiry_interval_s:
                continue
            self._expired_at[at] = now
            column = self.model.table(table).time
            self._command(
                f"DELETE FROM {ddl.rows(self.model.name, table, version)} "
                f"WHERE _partition = {int(write.partition)} AND `{column}` < {int(cutoff_ms)}"
            )

    def _insert(self, table: str, rows: pl.DataFrame, token: str) -> None:
        settings = {**INSERT, "insert_deduplication_token": token}
        arrow = rows.to_arrow(compat_level=pl.CompatLevel.oldest())
        with translated():
            self._client.insert_arrow(table, arrow, settings=settings)

    def _query(self, sql: str, **parameters: Any) -> list[Any]:
        with translated():
            return list(self._client.query(sql, parameters=parameters).result_rows)

    def _command(self, sql: str, **parameters: Any) -> None:
        with translated():
            self._client.command(sql, parameters=parameters)


def _token(where: str, write: Write, block: int) -> str:
    """The identity of a block. The rows of an empty span may differ each time, so they have one
    of their own; without a token ClickHouse would compare the content, and drop the third of the
    flushes A, B, A.
    """
    if write.expected == write.position:
        return f"{where}/{uuid4()}"
    first = 0 if write.expected is None else write.expected.next_offset
    return f"{where}/{write.position.topic_id}/[{first},{write.position.next_offset})/{block}"
