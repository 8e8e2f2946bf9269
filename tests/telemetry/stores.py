"""Read models of telemetry on the real stores, under names of one test run."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sinks.drivers import clickhouse
from sinks.drivers.s3 import S3Sink
from sinks.drivers.s3 import connect as connect_s3
from sinks.readers.clickhouse import ClickHouseReader
from sinks.readers.s3 import S3Reader
from streams.runtime.kafka import partition_of
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink
from streams.runtime.testing import Harness
from tests.telemetry.log import DAY, T


@dataclass
class Stores:
    """Sinks and readers of models with names of their own."""

    tag: str
    client: Any
    settings: Settings

    def named(self, projection: Projection) -> Projection:
        """The projection over a model of this run."""
        model = replace(projection.model, name=f"{self.tag}-{projection.model.name}")
        return replace(projection, name=model.name, model=model)

    def sink(self, projection: Projection) -> Sink:
        """The sink of a projection of this run."""
        model = self.named(projection).model
        if projection.store == "s3":
            return S3Sink(model, connect_s3(self.settings.s3))
        return clickhouse.ClickHouseSink(model, self.client, expiry_interval_s=0)

    def fold(self, projection: Projection, rows: Sequence[Any], cuts: Sequence[int] = ()) -> None:
        """The projection over the topic's partitions, keyed as producers key."""
        sink = self.sink(projection)
        topic = projection.topic
        for partition in range(topic.partitions):
            harness = Harness(self.named(projection), sink, partition=partition)
            mine = [
                r
                for r in rows
                if partition_of(getattr(r, topic.key), topic.partitions) == partition
            ]
            harness.send(*mine, append_ms=T + 400 * DAY)
            harness.run(cuts)

    def clickhouse(self, projection: Projection) -> ClickHouseReader:
        """Reads of a projection's model."""
        url = self.settings.clickhouse.url.get_secret_value()
        return ClickHouseReader(self.named(projection).model, url)

    def s3(self, projection: Projection) -> S3Reader:
        """Reads of a projection's model."""
        return S3Reader(self.named(projection).model, self.settings.s3)


@contextmanager
def opened() -> Iterator[Stores]:
    """Stores that are emptied at the end."""
    settings = Settings.read()
    url = settings.clickhouse.url.get_secret_value()
    client = clickhouse.connect(url)
    stores = Stores(f"t{uuid.uuid4().hex[:8]}", client, settings)
    try:
        yield stores
    finally:
        found = client.query(
            "SELECT name, engine FROM system.tables WHERE database = currentDatabase() "
            f"AND name LIKE '{stores.tag}%'"
        ).result_rows
        for name, engine in found:
            client.command(f"DROP {'VIEW' if engine == 'View' else 'TABLE'} {name} SYNC")
        client.close()
        bucket = connect_s3(settings.s3)
        bucket.delete(list(bucket.keys(stores.tag)))
        bucket.close()
