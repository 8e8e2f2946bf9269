"""The projections of the feed with limits so small that everything happens among few people."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import polars as pl

from schemas.feed.events import EVENTS, FeedOpened
from sinks import feed as store
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.feed.reader import FeedReader
from sinks.readers.redis import Entry
from streams.feed import SYSTEM
from streams.feed.fold import FanOut
from streams.runtime.kafka import partition_of
from streams.runtime.position import Position, applied
from streams.runtime.settings import Feed
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness
from streams.runtime.topic import Topic
from tests.feed.oracle import Oracle

LIMITS = Feed(followers_max=4, active_days=1)
FEEDS, OUTBOX = replace(store.FEEDS, entries_max=12), replace(store.OUTBOX, entries_max=5)
HOME, BODIES = SYSTEM.projections
FEW = replace(
    HOME,
    fold=FanOut(lambda: LIMITS),
    model=ReadModel("few", (FEEDS, OUTBOX, *store.HOME.tables[2:])),
)
"""Feeds and outboxes overflow; the fixture `few` makes the fold use them."""


def oracle() -> Oracle:
    return Oracle(LIMITS, FEEDS.entries_max, OUTBOX.entries_max)


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


class Village:
    """All log partitions, folded as events come; what the reader reads, and the oracles."""

    def __init__(self) -> None:
        self.ids, self.bodies = memory(FEW.model), memory(BODIES.model)
        self.partitions = [
            (Harness(FEW, self.ids, p), Harness(BODIES, self.bodies, p))
            for p in range(EVENTS.partitions)
        ]
        self.oracles = [oracle() for _ in self.partitions]
        self.reader = FeedReader(_Ids(self.ids), _Bodies(self.bodies), LIMITS.active_ms)

    def tell(self, events: Iterable[Any]) -> None:
        """Each event where its author is; who comes back is told everywhere."""
        for event in events:
            own = partition_of(event.author, EVENTS.partitions)
            for at, harnesses in enumerate(self.partitions):
                if at == own or isinstance(event, FeedOpened):
                    self.oracles[at].fold([event])
                    for harness in harnesses:
                        harness.send(event)
        for harnesses in self.partitions:
            for harness in harnesses:
                harness.run()


class _Stored:
    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    async def positions(self) -> dict[tuple[str, int], Position]:
        return self._sink.positions(1)

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        return applied(self._sink.positions(1), *topics)

    async def bucket(self, table: str, bucket: Any, partition: int | None = None) -> pl.DataFrame:
        shape = self._sink.model.table(table)
        empty = pl.DataFrame(schema={**shape.columns, "_partition": pl.Int32})
        rows = pl.concat([empty, *self._sink.rows(1, table, partition)])
        return rows.filter(*(pl.col(name) == value for name, value in bucket.items()))

    async def close(self) -> None:
        """Nothing is held."""


class _Ids(_Stored):
    async def newest(
        self,
        timeline: str,
        feeds: Any,
        limit: int,
        before: Entry | None = None,
        partition: int | None = None,
    ) -> list[Entry]:
        found = set[Entry]()
        for feed in feeds:
            rows = await self.bucket(timeline, feed, partition)
            told = rows.select("time_ms", "author", "post_id").iter_rows()
            found |= {Entry(*row) for row in told}
        order = sorted(found, key=Entry.order, reverse=True)
        return [one for one in order if before is None or one.order() < before.order()][:limit]


class _Bodies(_Stored):
    async def get(
        self, table: str, key: Any, partition: int | None = None
    ) -> dict[str, Any] | None:
        rows = (await self.bucket(table, key, partition)).drop("_partition")
        return rows.row(0, named=True) if rows.height else None
