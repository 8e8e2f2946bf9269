"""The stores' clients at their best, without fence, position or idempotency.

Redis: one multi-pair HSET or ZADD a key, in one MULTI a write. ClickHouse: `insert_arrow` of the
whole frame into the same table. Cassandra: unlogged batches of one partition, 64 in flight.
S3: Parquet by pyarrow, one object a write.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import polars as pl
import pyarrow.parquet as pq
from cassandra.concurrent import execute_concurrent
from cassandra.query import BatchStatement, BatchType

from sinks.drivers import cassandra, clickhouse, s3
from sinks.drivers import redis as valkey
from sinks.drivers.clickhouse import ddl
from streams.runtime.settings import Settings
from streams.runtime.sink import Ranking, Table
from tests.bench import shapes

NAME = "bench-raw"
IN_FLIGHT = 64
BATCH_ROWS = 100


class Raw(Protocol):
    """Something rows can be written to and read back from."""

    def write(self, rows: pl.DataFrame) -> None: ...
    def stored(self) -> shapes.Stored: ...
    def close(self) -> None: ...


class Redis:
    """Hashes by window, sorted sets by board."""

    def __init__(self, table: Table | Ranking, settings: Settings) -> None:
        self._table = table
        self._client: Any = valkey.connect(settings.redis.url.get_secret_value())
        self._prefix = f"{{{NAME}}}:{table.name}:"
        self._forget()

    def write(self, rows: pl.DataFrame) -> None:
        if isinstance(self._table, Ranking):
            command, key, pairs = "ZADD", "board", rows.select("score", "player_id")
        else:
            totals = pl.format("{},{}", "clicks", "cost_micros")
            command, key, pairs = "HSET", "start_ms", rows.select("campaign_id", totals)
        flat = rows.select(
            key, pl.concat_list(pairs.select(pl.all().cast(pl.String)).iter_columns()).alias("flat")
        )
        groups = flat.group_by(key).agg(pl.col("flat").explode())
        with self._client.pipeline(transaction=True) as pipe:
            for name, values in groups.iter_rows():
                pipe.execute_command(command, f"{self._prefix}{name}", *values)
            pipe.execute()

    def stored(self) -> shapes.Stored:
        rows = total = 0
        for name in list(self._client.scan_iter(match=self._prefix + "*", count=1_000)):
            if isinstance(self._table, Ranking):
                scores = [score for _, score in self._client.zrange(name, 0, -1, withscores=True)]
            else:
                scores = [int(one.split(b",")[1]) for one in self._client.hvals(name)]
            rows, total = rows + len(scores), total + int(sum(scores))
        return shapes.Stored(rows, total)

    def close(self) -> None:
        self._forget()
        self._client.close()

    def _forget(self) -> None:
        for name in list(self._client.scan_iter(match=self._prefix + "*", count=1_000)):
            self._client.unlink(name)


class ClickHouse:
    """The driver's own table, filled without tokens and without looking."""

    def __init__(self, table: Table | Ranking, settings: Settings) -> None:
        if isinstance(table, Ranking):
            raise TypeError("ClickHouse keeps no rankings")
        self._table = table
        self._client = clickhouse.connect(settings.clickhouse.url.get_secret_value())
        self._name = ddl.rows(NAME, table.name, 1)
        self._client.command(f"DROP TABLE IF EXISTS {self._name} SYNC")
        self._client.command(ddl.create_rows(NAME, table, 1))
        self._written = 0

    def write(self, rows: pl.DataFrame) -> None:
        self._written += rows.height
        stamped = rows.with_columns(
            pl.lit(0, pl.Int32).alias("_partition"),
            pl.lit(self._written, pl.UInt64).alias("_version"),
            pl.lit(0, pl.UInt8).alias("_deleted"),
        )
        arrow = stamped.to_arrow(compat_level=pl.CompatLevel.oldest())
        self._client.insert_arrow(self._name, arrow, settings={"optimize_on_insert": 0})

    def stored(self) -> shapes.Stored:
        sql = f"SELECT count(), sum({shapes.summed(self._table)}) FROM {self._name} FINAL"
        rows, total = self._client.query(sql).result_rows[0]
        return shapes.Stored(int(rows), int(total))

    def close(self) -> None:
        self._client.command(f"DROP TABLE IF EXISTS {self._name} SYNC")
        self._client.close()


class Cassandra:
    """A table of its own with the same keys."""

    def __init__(self, table: Table | Ranking, settings: Settings) -> None:
        if isinstance(table, Ranking):
            raise TypeError("Cassandra keeps no rankings")
        self._table = table
        self._store = cassandra.connect(settings.cassandra)
        self._session = self._store.session
        self._name = f'"{self._store.keyspace}".bench_raw_{table.name}'
        columns = {c: "text" if d == pl.String else "bigint" for c, d in table.columns.items()}
        rest = ", ".join(c for c in table.key if c not in table.bucket)
        declared = ", ".join(f"{c} {kind}" for c, kind in columns.items())
        self._session.execute(f"DROP TABLE IF EXISTS {self._name}")
        self._session.execute(
            f"CREATE TABLE {self._name} (part int, {declared}, "
            f"PRIMARY KEY ((part, {', '.join(table.bucket)}), {rest}))"
        )
        marks = ", ".join("?" * (len(columns) + 1))
        self._insert = self._session.prepare(
            f"INSERT INTO {self._name} (part, {', '.join(columns)}) VALUES ({marks})"
        )

    def write(self, rows: pl.DataFrame) -> None:
        found = execute_concurrent(
            self._session, self._batches(rows), IN_FLIGHT, raise_on_first_error=True
        )
        if not all(one.success for one in found):
            raise AssertionError("a batch failed")

    def _batches(self, rows: pl.DataFrame) -> Iterator[tuple[BatchStatement, None]]:
        for _, group in rows.group_by(*self._table.bucket, maintain_order=True):
            columns = [
                (column.to_physical() if column.dtype.is_temporal() else column).to_list()
                for column in group.iter_columns()
            ]
            lines = list(zip([0] * group.height, *columns, strict=True))
            for at in range(0, len(lines), BATCH_ROWS):
                batch = BatchStatement(BatchType.UNLOGGED)
                for line in lines[at : at + BATCH_ROWS]:
                    batch.add(self._insert, line)
                yield batch, None

    def stored(self) -> shapes.Stored:
        column = shapes.summed(self._table)
        rows = total = 0
        for (value,) in self._session.execute(f"SELECT {column} FROM {self._name}"):
            rows, total = rows + 1, total + value
        return shapes.Stored(rows, total)

    def close(self) -> None:
        self._session.execute(f"DROP TABLE IF EXISTS {self._name}")
        self._store.close()


class S3:
    """One object a write; of equal keys the later object counts."""

    def __init__(self, table: Table | Ranking, settings: Settings) -> None:
        if isinstance(table, Ranking):
            raise TypeError("S3 keeps no rankings")
        self._table = table
        self._bucket = s3.connect(settings.s3)
        self._prefix = f"{NAME}/{table.name}/"
        self._bucket.delete(list(self._bucket.keys(self._prefix)))
        self._written = 0

    def write(self, rows: pl.DataFrame) -> None:
        out = io.BytesIO()
        pq.write_table(rows.to_arrow(), out, compression="zstd")
        self._written += rows.height
        self._bucket.put(f"{self._prefix}{self._written:012}.parquet", out.getvalue())

    def stored(self) -> shapes.Stored:
        keys = sorted(self._bucket.keys(self._prefix))
        found = pl.concat([pl.read_parquet(io.BytesIO(self._bucket.get(key)[0])) for key in keys])
        return shapes.wanted(self._table, [found])

    def close(self) -> None:
        self._bucket.delete(list(self._bucket.keys(self._prefix)))
        self._bucket.close()


RAW: dict[str, Callable[[Table | Ranking, Settings], Raw]] = {
    "redis": Redis,
    "clickhouse": ClickHouse,
    "cassandra": Cassandra,
    "s3": S3,
}
