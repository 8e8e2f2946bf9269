"""What the API reads: buckets, positions and the live version, the same from every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from sinks.drivers.cassandra import CassandraSink
from sinks.readers import cassandra, clickhouse, redis, s3
from streams.runtime.position import FilterState
from streams.runtime.settings import S3
from streams.runtime.sink import ReadModel, SinkRejected, SinkUnavailable, Table, Upsert
from streams.runtime.topic import Topic
from tests.drivers.model import TOPIC, at, events, no_windows, read_model, span, windows
from tests.drivers.rigs import (
    CassandraRig,
    ClickHouseRig,
    RedisClusterRig,
    RedisRig,
    Rig,
    S3Rig,
    cassandra_settings,
)

pytestmark = pytest.mark.stack


@pytest.fixture(params=["redis", "redis-cluster", "clickhouse", "cassandra", "s3"])
async def reading(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Rig, Any]]:
    """A rig with its reader, which looks for the live version at every read."""
    for module in (redis, clickhouse, cassandra, s3):
        monkeypatch.setattr(module, "LIVE_MS", 0)
    rig, reader = opened(request.param)
    yield rig, reader
    await reader.close()
    rig.close()


def opened(store: str) -> tuple[Rig, Any]:
    """A rig, prepared where its reader asks for that, and the reader."""
    match store:
        case "clickhouse":
            columns = ClickHouseRig()
            columns.sink().prepare(1)
            return columns, clickhouse.ClickHouseReader(columns.model, columns.url, rows_max=50)
        case "s3":
            bucket = S3Rig()
            return bucket, s3.S3Reader(bucket.model, bucket.settings)
        case "cassandra":
            ring = CassandraRig()
            return ring, cassandra.CassandraReader(ring.model, ring.settings, rows_max=50)
        case _:
            rig = RedisRig(rankings=False) if store == "redis" else RedisClusterRig(rankings=False)
            return rig, redis.RedisReader(rig.model, rig.url)


async def test_a_bucket_of_one_or_all_partitions(reading: tuple[Rig, Any]) -> None:
    rig, reader = reading
    sink = rig.sink()
    sink.prepare(1)
    awkward = "é,\"'\\\n"
    sink.write(1, span(None, 4, windows((0, "a", 1), (0, awkward, 2), (1, "a", 9)), events(0, 1)))
    sink.write(1, span(None, 9, windows((0, "a", 3)), partition=2))
    found = await reader.bucket("windows", {"start_ms": 0})
    assert sorted(found.select("campaign", "clicks", "_partition").rows()) == [
        ("a", 1, 0), ("a", 3, 2), (awkward, 2, 0),
    ]  # fmt: skip
    assert (await reader.bucket("windows", {"start_ms": 0}, 2))["clicks"].to_list() == [3]
    assert (await reader.bucket("windows", {"start_ms": 5})).is_empty()
    assert found.schema == (await reader.bucket("windows", {"start_ms": 5})).schema
    assert sorted((await reader.bucket("events", {}))["offset"]) == [0, 1]
    with pytest.raises(KeyError):
        await reader.bucket("windows", {"campaign": "a"})


async def test_positions(reading: tuple[Rig, Any]) -> None:
    rig, reader = reading
    assert await reader.applied() == {}
    assert await reader.position(TOPIC, 0) is None
    sink = rig.sink()
    sink.write(1, span(None, 4))
    sink.write(1, span(None, 9, partition=2))
    assert await reader.applied() == {(TOPIC, 0): 4, (TOPIC, 2): 9}
    assert await reader.position(TOPIC, 2) == at(9)
    assert await reader.positions() == {(TOPIC, 0): at(4), (TOPIC, 2): at(9)}


async def test_commands_are_applied_with_their_events(reading: tuple[Rig, Any]) -> None:
    rig, reader = reading
    sink = rig.sink()
    decided = replace(at(9), filter_next=FilterState(0, "00" * 16, 5, 41))
    sink.write(1, replace(span(None, 9), position=decided))
    events = Topic(TOPIC, (), "k", None, 1, "tests", "Events.", decides="test.commands")
    assert await reader.applied(events) == {(TOPIC, 0): 9, ("test.commands", 0): 42}


async def test_reads_follow_the_switch(reading: tuple[Rig, Any]) -> None:
    rig, reader = reading
    sink = rig.sink()
    for version in (1, 2):
        sink.prepare(version)
        sink.write(version, span(None, version, windows((0, "a", version))))
        assert (await reader.bucket("windows", {"start_ms": 0}))["clicks"].to_list() == [1]
    sink.switch(2)
    assert await reader.live_version() == 2
    assert (await reader.bucket("windows", {"start_ms": 0}))["clicks"].to_list() == [2]
    assert await reader.applied() == {(TOPIC, 0): 2}


async def test_clickhouse_queries_are_parameterised_and_limited() -> None:
    rig = ClickHouseRig()
    sink = rig.sink()
    sink.prepare(1)
    sink.write(1, span(None, 1, windows((0, "a' OR 1=1 --", 1), (0, "b", 2)), events(*range(60))))
    sink.write(1, span(1, 2, windows((0, "b", 5))))
    reader = clickhouse.ClickHouseReader(rig.model, rig.url, rows_max=50)
    sql = "SELECT campaign, clicks FROM {windows:Identifier} FINAL WHERE campaign = {name:String}"
    assert (await reader.query(sql, name="a' OR 1=1 --")).rows() == [("a' OR 1=1 --", 1)]
    assert (await reader.query(sql, name="b")).rows() == [("b", 5)]
    with pytest.raises(SinkRejected, match="TOO_MANY_ROWS"):
        await reader.query("SELECT offset FROM {events:Identifier} FINAL")
    await reader.close()
    rig.close()


ITEMS = Table(
    "items",
    key={"owner": pl.String, "at": pl.Datetime("us", "UTC"), "name": pl.String, "n": pl.UInt64},
    values={"size": pl.Int32},
    bucket=("owner",),
)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def pages() -> AsyncIterator[tuple[list[tuple[Any, ...]], cassandra.CassandraReader]]:
    """Rows of two buckets in three log partitions, sorted, and a reader of them."""
    rig = CassandraRig()
    model = ReadModel(rig.model.name, (ITEMS,))
    sink = CassandraSink(model, rig.store)
    lines = [
        (owner, EPOCH + timedelta(microseconds=i // 8), f"é{i % 4}", 2**64 - 1 - i, i)
        for i in range(48)
        for owner in ("ann", "bob")
    ]
    for partition in range(3):
        part = [line for line in lines if line[-1] % 3 == partition]
        rows = pl.DataFrame(part, schema=ITEMS.columns, orient="row")
        sink.write(1, span(None, 1, Upsert(ITEMS, rows), partition=partition))
    reader = cassandra.CassandraReader(model, rig.settings, rows_max=40)
    yield sorted(line for line in lines if line[0] == "ann"), reader
    await reader.close()
    rig.close()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 7, 40])
async def test_pages_follow_each_other(
    pages: tuple[list[tuple[Any, ...]], cassandra.CassandraReader], limit: int, descending: bool
) -> None:
    rows, reader = pages
    seen: list[tuple[Any, ...]] = []
    after = None
    while True:
        page = await reader.page(
            "items", {"owner": "ann"}, limit, after=after, descending=descending
        )
        if page.is_empty():
            break
        assert page.height <= limit
        seen += page.drop("_partition").rows()
        after = seen[-1][1:4]
    assert seen == sorted(rows, reverse=descending)


async def test_pages_of_a_longer_prefix(
    pages: tuple[list[tuple[Any, ...]], cassandra.CassandraReader],
) -> None:
    rows, reader = pages
    prefix = {"owner": "ann", "at": EPOCH + timedelta(microseconds=2)}
    wanted = [row for row in rows if row[1] == prefix["at"]]
    assert (await reader.page("items", prefix, 40)).drop("_partition").rows() == wanted
    rest = await reader.page("items", prefix, 40, after=wanted[2][2:4])
    assert rest.drop("_partition").rows() == wanted[3:]
    last = await reader.page("items", prefix, 2, after=wanted[4][2:4], descending=True)
    assert last.drop("_partition").rows() == [wanted[3], wanted[2]]
    with pytest.raises(SinkRejected, match="1 to 40 rows"):
        await reader.page("items", prefix, 41)
    with pytest.raises(KeyError, match="prefix of"):
        await reader.page("items", {"at": prefix["at"]}, 1)
    with pytest.raises(SinkRejected, match="more than 40 rows"):
        await reader.bucket("items", {"owner": "ann"})


async def test_one_row_by_its_key(
    pages: tuple[list[tuple[Any, ...]], cassandra.CassandraReader],
) -> None:
    rows, reader = pages
    for row in rows[:7]:
        key = dict(zip(ITEMS.key, row, strict=False))
        found = await reader.get("items", key)
        assert found == {**key, "size": row[-1]}
        assert await reader.get("items", key, row[-1] % 3) == found
        assert await reader.get("items", key, (row[-1] + 1) % 3) is None
    with pytest.raises(KeyError, match="rows by"):
        await reader.get("items", {"owner": "ann"})


async def test_many_reads_at_once_of_cassandra() -> None:
    rig, reader = opened("cassandra")
    sink = rig.sink()
    assert (await reader.bucket("windows", {"start_ms": 0})).is_empty()
    many = windows(*((t, f"c{i}", i) for t in range(40) for i in range(20)))
    sink.write(1, span(None, 1, many, no_windows((0, "c0"))))
    assert await reader.applied() == {(TOPIC, 0): 1}
    found = await asyncio.gather(*(reader.bucket("windows", {"start_ms": t}) for t in range(40)))
    assert [frame.height for frame in found] == [19, *[20] * 39]
    sink.write(1, span(None, 7, windows((0, "new", 1)), partition=3))
    assert await reader.applied() == {(TOPIC, 0): 1, (TOPIC, 3): 7}, "a new partition"
    assert "new" in (await reader.bucket("windows", {"start_ms": 0}))["campaign"]
    await reader.close()
    rig.close()


async def test_a_keyspace_that_is_not_there_yet() -> None:
    settings = cassandra_settings().model_copy(update={"keyspace": "nobody_made_this"})
    reader = cassandra.CassandraReader(read_model(rankings=False), settings)
    with pytest.raises(SinkUnavailable, match="no keyspace"):
        await reader.applied()
    await reader.close()


async def test_a_store_that_is_away_is_unavailable() -> None:
    model = read_model(rankings=False)
    for reader in (
        redis.RedisReader(model, "redis://127.0.0.1:1/0"),
        clickhouse.ClickHouseReader(model, "http://default@127.0.0.1:1/default"),
        s3.S3Reader(model, S3(url="http://127.0.0.1:1")),
        cassandra.CassandraReader(model, cassandra_settings().model_copy(update={"port": 1})),
    ):
        with pytest.raises(SinkUnavailable):
            await reader.applied()
        await reader.close()
