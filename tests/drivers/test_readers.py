"""What the API reads: buckets, positions and the live version, the same from every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from sinks.readers import clickhouse, redis, s3
from streams.runtime.settings import S3
from streams.runtime.sink import SinkRejected, SinkUnavailable
from tests.drivers.model import TOPIC, at, events, span, windows
from tests.drivers.rigs import ClickHouseRig, RedisRig, Rig, S3Rig

pytestmark = pytest.mark.stack


@pytest.fixture(params=["redis", "clickhouse", "s3"])
async def reading(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Rig, Any]]:
    """A rig with its reader, which looks for the live version at every read."""
    monkeypatch.setattr(redis, "LIVE_MS", 0)
    monkeypatch.setattr(clickhouse, "LIVE_MS", 0)
    monkeypatch.setattr(s3, "LIVE_MS", 0)
    rig: RedisRig | ClickHouseRig | S3Rig
    reader: redis.RedisReader | clickhouse.ClickHouseReader | s3.S3Reader
    if request.param == "redis":
        rig = RedisRig(rankings=False)
        reader = redis.RedisReader(rig.model, rig.url)
    elif request.param == "s3":
        rig = S3Rig()
        reader = s3.S3Reader(rig.model, rig.settings)
    else:
        rig = ClickHouseRig()
        rig.sink().prepare(1)
        reader = clickhouse.ClickHouseReader(rig.model, rig.url, rows_max=50)
    yield rig, reader
    await reader.close()
    rig.close()


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
    assert await reader.applied() == {0: 4, 2: 9}
    assert await reader.position(TOPIC, 2) == at(9)
    assert await reader.positions() == {(TOPIC, 0): at(4), (TOPIC, 2): at(9)}


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
    assert await reader.applied() == {0: 2}


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


async def test_a_store_that_is_away_is_unavailable() -> None:
    from tests.drivers.model import read_model

    model = read_model(rankings=False)
    for reader in (
        redis.RedisReader(model, "redis://127.0.0.1:1/0"),
        clickhouse.ClickHouseReader(model, "http://default@127.0.0.1:1/default"),
        s3.S3Reader(model, S3(url="http://127.0.0.1:1")),
    ):
        with pytest.raises(SinkUnavailable):
            await reader.applied()
        await reader.close()
