"""One rig a store: how the tests get writers to it, break the line to it and turn it back."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol
from urllib.parse import urlsplit

import pytest
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from sinks.drivers import cassandra, clickhouse
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.drivers.redis import RedisSink, connect
from sinks.drivers.s3 import S3Sink
from sinks.drivers.s3 import connect as connect_s3
from streams.runtime.settings import Cassandra, Settings
from streams.runtime.sink import ReadModel, Sink, SinkUnavailable
from tests.drivers.model import read_model
from tests.drivers.proxy import Fault, Proxy
from tests.drivers.valkey_cluster import ValkeyCluster


class Rig(Protocol):
    """A store with one read model in it."""

    model: ReadModel

    def sink(self) -> Sink:
        """Another writer, as in another process."""
        ...

    def broken(self, fault: Fault, request: int, run: Callable[[Sink], None]) -> bool:
        """Run with a writer whose `request`-th request breaks, which it tells as
        `SinkUnavailable` unless it was only a look. False when there were fewer requests.
        """
        ...

    def snapshot(self) -> Any:
        """What the store holds now."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Turn the store back, under the feet of its writers."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def unavailable(run: Callable[[Sink], None], sink: Sink) -> bool:
    """Whether it raised `SinkUnavailable`."""
    try:
        run(sink)
    except SinkUnavailable:
        return True
    return False


class MemoryRig:
    def __init__(self, *, rankings: bool = True) -> None:
        self.model = read_model(rankings=rankings)
        self.store = MemoryStore()

    def sink(self) -> Sink:
        return MemorySink(self.model, self.store)

    def broken(self, fault: Fault, request: int, run: Callable[[Sink], None]) -> bool:
        if fault is Fault.CUT:
            self.store.fail_after(request)
        elif request == 0:
            self.store.lose_replies(1)
        said = unavailable(run, self.sink())
        self.store.heal()
        return said

    def snapshot(self) -> Any:
        return self.store.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.store.restore(snapshot)

    def close(self) -> None:
        self.store.restore({})


class ProxiedRig:
    """A store behind TCP: faults come from a proxy."""

    model: ReadModel

    def __init__(self, url: str, *further: int) -> None:
        address = urlsplit(url)
        self.proxy = Proxy(address.port or 0, *further)
        self.proxy_url = url.replace(f":{address.port}", f":{self.proxy.port}")
        self._opened: list[Sink] = []

    def connect(self, url: str) -> Sink:
        raise TypeError("a rig knows its driver")

    def opened(self, url: str) -> Sink:
        sink = self.connect(url)
        self._opened.append(sink)
        return sink

    def broken(self, fault: Fault, request: int, run: Callable[[Sink], None]) -> bool:
        sink = self.connect(self.proxy_url)
        sink.live_version()
        self.proxy.arm(fault, request)
        said = unavailable(run, sink)
        self.proxy.disarm()
        sink.close()
        assert self.proxy.fired or not said
        return self.proxy.fired

    def closed(self) -> None:
        for sink in self._opened:
            sink.close()
        self.proxy.close()


class RedisRig(ProxiedRig):
    def __init__(self, *, rankings: bool = True) -> None:
        self.model = read_model(rankings=rankings)
        self.url = self.address()
        super().__init__(self.url, *self.further())
        self.client: Any = connect(self.url)

    def address(self) -> str:
        return Settings.read().redis.url.get_secret_value()

    def further(self) -> list[int]:
        """Ports of further nodes."""
        return []

    def connect(self, url: str) -> Sink:
        return RedisSink(self.model, connect(url, timeout_s=60))

    def sink(self) -> Sink:
        return self.opened(self.url)

    def _keys(self) -> list[bytes]:
        return list(self.client.scan_iter(f"{{{self.model.name}*", count=10_000))

    def snapshot(self) -> dict[bytes, bytes]:
        return {key: self.client.dump(key) for key in self._keys()}

    def restore(self, snapshot: dict[bytes, bytes]) -> None:
        for key in self._keys():
            self.client.delete(key)
        for key, value in snapshot.items():
            self.client.restore(key, 0, value)

    def close(self) -> None:
        self.closed()
        for key in self._keys():
            self.client.delete(key)
        self.client.close()


@cache
def valkey_cluster() -> ValkeyCluster:
    """The cluster of this run; `conftest` stops it."""
    return ValkeyCluster()


class RedisClusterRig(RedisRig):
    """The same driver; its client finds the nodes from one of them."""

    def address(self) -> str:
        return valkey_cluster().url

    def further(self) -> list[int]:
        return valkey_cluster().ports[1:]

    def connect(self, url: str) -> Sink:
        if url == self.url:
            return super().connect(url)
        client = RedisCluster.from_url(
            url,
            socket_timeout=60,
            retry=Retry(NoBackoff(), 0),
            address_remap=lambda at: (at[0], self.proxy.ports.get(at[1], at[1])),
        )
        return RedisSink(self.model, client)


class ClickHouseRig(ProxiedRig):
    def __init__(self, *, rankings: bool = False) -> None:
        self.model = read_model(rankings=rankings)
        self.url = Settings.read().clickhouse.url.get_secret_value()
        super().__init__(self.url)
        self.client = clickhouse.connect(self.url)

    def connect(self, url: str) -> Sink:
        client = clickhouse.connect(url)
        return clickhouse.ClickHouseSink(self.model, client, expiry_interval_s=0)

    def sink(self) -> Sink:
        return self.opened(self.url)

    def _tables(self, engines: str = "%MergeTree") -> list[str]:
        found = self.client.query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() "
            "AND startsWith(name, {prefix:String}) AND engine LIKE {engines:String}",
            parameters={"prefix": self.model.name.replace("-", "_") + "_", "engines": engines},
        )
        return [name for (name,) in found.result_rows]

    def snapshot(self) -> list[str]:
        tables = self._tables()
        for name in tables:
            self.client.command(f"CREATE TABLE older_{name} CLONE AS {name}")
        return tables

    def restore(self, snapshot: list[str]) -> None:
        for name in self._tables():
            self.client.command(f"DROP TABLE {name} SYNC")
        for name in snapshot:
            self.client.command(f"CREATE TABLE {name} CLONE AS older_{name}")
            self.client.command(f"DROP TABLE older_{name} SYNC")

    def close(self) -> None:
        self.closed()
        for name in self._tables("View"):
            self.client.command(f"DROP VIEW {name}")
        for name in self._tables():
            self.client.command(f"DROP TABLE {name} SYNC")
            self.client.command(f"DROP TABLE IF EXISTS older_{name} SYNC")
        self.client.close()


class S3Rig(ProxiedRig):
    def __init__(self, *, rankings: bool = False) -> None:
        self.model = read_model(rankings=rankings)
        self.settings = Settings.read().s3
        super().__init__(self.settings.url)
        self.bucket = connect_s3(self.settings)

    def connect(self, url: str) -> Sink:
        return S3Sink(self.model, connect_s3(self.settings.model_copy(update={"url": url})))

    def sink(self) -> Sink:
        return self.opened(self.settings.url)

    def pieces(self) -> list[str]:
        """The keys of all Parquet objects, in use or not."""
        return [key for key in self.keys() if key.endswith(".parquet")]

    def keys(self) -> list[str]:
        return list(self.bucket.keys(f"{self.model.name}/"))

    def snapshot(self) -> dict[str, bytes]:
        return {key: self.bucket.get(key)[0] for key in self.keys()}

    def restore(self, snapshot: dict[str, bytes]) -> None:
        self.bucket.delete(self.keys())
        for key, content in snapshot.items():
            self.bucket.put(key, content)

    def close(self) -> None:
        self.closed()
        self.bucket.delete(self.keys())
        self.bucket.close()


@cache
def cassandra_settings() -> Cassandra:
    """A keyspace for this run; `conftest` drops it."""
    own = {"keyspace": f"test_drivers_{os.getpid()}"}
    return Settings.read().cassandra.model_copy(update=own)


class CassandraRig(ProxiedRig):
    def __init__(self, *, rankings: bool = False) -> None:
        self.model = read_model(rankings=rankings)
        self.settings = cassandra_settings()
        self.url = f"cql://127.0.0.1:{self.settings.port}"
        super().__init__(self.url)
        self.store = cassandra.connect(self.settings)

    def connect(self, url: str) -> Sink:
        settings = self.settings.model_copy(update={"port": urlsplit(url).port})
        return cassandra.CassandraSink(self.model, cassandra.connect(settings, timeout_s=20))

    def sink(self) -> Sink:
        return self.opened(self.url)

    def _tables(self) -> dict[str, dict[str, bool]]:
        """Table → column → whether it is part of the key."""
        found = self.store.plain(
            "SELECT table_name, column_name, kind FROM system_schema.columns "
            "WHERE keyspace_name = ?",
            self.store.keyspace,
        )
        own = self.model.name.replace("-", "_")
        tables: dict[str, dict[str, bool]] = {}
        for table, column, kind in found:
            if table in ("positions", "journal", "fences", "versions") or table.startswith(own):
                tables.setdefault(table, {})[column] = kind in ("partition_key", "clustering")
        return tables

    def snapshot(self) -> list[tuple[str, list[Any]]]:
        """Statements that bring back every row with the timestamp it has."""
        kept: list[tuple[str, list[Any]]] = []
        for table, columns in self._tables().items():
            names = ", ".join(f'"{c}"' for c in columns)
            values = [c for c, key in columns.items() if not key]
            stamped = bool(values) and table not in ("fences", "versions")
            stamp = [f'writetime("{_first(values)}")'] if stamped else []
            for page in self.store.pages(f'SELECT {", ".join([names, *stamp])} FROM $"{table}"'):
                cql = f'INSERT INTO $"{table}" ({names}) VALUES ({", ".join("?" * len(columns))})'
                kept += [(cql + " USING TIMESTAMP ?" * stamped, list(row)) for row in page]
        return kept

    def restore(self, snapshot: list[tuple[str, list[Any]]]) -> None:
        for table in self._tables():
            self.store.define(f'TRUNCATE $"{table}"')
        for cql, values in snapshot:
            self.store.plain(cql, *values)

    def close(self) -> None:
        self.closed()
        self.store.close()


def _first(values: list[str]) -> str:
    """A column that is never null in these tests."""
    return next(c for c in ("clicks", "payload", "position", "data") if c in values)


RIGS: dict[str, Callable[..., Rig]] = {
    "memory": MemoryRig,
    "redis": RedisRig,
    "redis-cluster": RedisClusterRig,
    "clickhouse": ClickHouseRig,
    "s3": S3Rig,
    "cassandra": CassandraRig,
}
RANKED = ("memory", "redis", "redis-cluster")
"""The stores that hold rankings."""

PARAMS = [pytest.param(name, marks=[] if name == "memory" else pytest.mark.stack) for name in RIGS]


def stop_servers() -> None:
    """End what was started for all tests of the run, and forget what they left."""
    if valkey_cluster.cache_info().currsize:
        valkey_cluster().stop()
    if cassandra_settings.cache_info().currsize:
        store = cassandra.connect(cassandra_settings())
        store.define(f'DROP KEYSPACE "{store.keyspace}"')
        store.close()
