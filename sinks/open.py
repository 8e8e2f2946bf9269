"""Opens the sink of a read model by the name of its store; drivers are imported on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel, Sink

if TYPE_CHECKING:
    from sinks.readers.cassandra import CassandraReader
    from sinks.readers.clickhouse import ClickHouseReader
    from sinks.readers.redis import RedisReader
    from sinks.readers.s3 import S3Reader

STORES = ("memory", "redis", "clickhouse", "cassandra", "s3")

_MEMORY = MemoryStore()
"""What all memory sinks of this process share."""


def open_sink(store: str, model: ReadModel, settings: Settings) -> Sink:
    """The sink of `model` in `store`.

    Raises `ValueError` for an unknown store, `TypeError` when the store cannot hold the model,
    and `SinkUnavailable` when it does not answer.
    """
    match store:
        case "memory":
            return MemorySink(model, _MEMORY)
        case "redis":
            from sinks.drivers.redis import RedisSink, connect

            return RedisSink(model, connect(settings.redis.url.get_secret_value()))
        case "clickhouse":
            from sinks.drivers import clickhouse

            client = clickhouse.connect(settings.clickhouse.url.get_secret_value())
            return clickhouse.ClickHouseSink(model, client)
        case "s3":
            from sinks.drivers import s3

            return s3.S3Sink(model, s3.connect(settings.s3))
        case "cassandra":
            from sinks.drivers import cassandra

            return cassandra.CassandraSink(model, cassandra.connect(settings.cassandra))
        case _:
            raise ValueError(f"no store {store!r}; there are {', '.join(STORES)}")


def open_redis_reader(model: ReadModel, settings: Settings) -> RedisReader:
    """What the API reads a model in Redis with; connects at the first read."""
    from sinks.readers.redis import RedisReader

    return RedisReader(model, settings.redis.url.get_secret_value())


def open_clickhouse_reader(model: ReadModel, settings: Settings) -> ClickHouseReader:
    """What the API reads a model in ClickHouse with; connects at the first read."""
    from sinks.readers.clickhouse import ClickHouseReader

    return ClickHouseReader(model, settings.clickhouse.url.get_secret_value())


def open_s3_reader(model: ReadModel, settings: Settings) -> S3Reader:
    """What the API reads a model in S3 with; connects at the first read."""
    from sinks.readers.s3 import S3Reader

    return S3Reader(model, settings.s3)


def open_cassandra_reader(model: ReadModel, settings: Settings) -> CassandraReader:
    """What the API reads a model in Cassandra with; connects at the first read."""
    from sinks.readers.cassandra import CassandraReader

    return CassandraReader(model, settings.cassandra)
