"""Where leases and ranges are stored, and how they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from schemas.ids.events import EVENTS
from sinks.open import open_redis_reader
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel, Table

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader

LEASES = Table(
    name="leases",
    key={"space": pl.String, "worker": pl.Int32, "lease_id": pl.String},
    values={
        "holder": pl.String,
        "change": pl.String,
        "from_ms": pl.Int64,
        "until_ms": pl.Int64,
        "recorded_ms": pl.Int64,
        "offset": pl.Int64,
    },
    bucket=("space", "worker"),
)
"""Every lease there ever was, as it stands, one hash a worker number; `offset` is of its last
event."""

RANGES = Table(
    name="ranges",
    key={"space": pl.String, "first": pl.Int64},
    values={
        "size": pl.Int32,
        "holder": pl.String,
        "recorded_ms": pl.Int64,
        "offset": pl.Int64,
    },
    append=True,
)

MODEL = ReadModel("ids-leases", (LEASES, RANGES))


@dataclass(frozen=True)
class Lease:
    """Who may make ids of a worker number with timestamps in `[from_ms, until_ms)`."""

    worker: int
    lease_id: str
    holder: str
    change: str
    from_ms: int
    until_ms: int
    recorded_ms: int
    offset: int


class IdsReader:
    """Reads of `ids-leases`. One instance serves any number of concurrent requests."""

    def __init__(self, rows: RedisReader) -> None:
        self._rows = rows

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[IdsReader]:
        """The reader of the real store, which it connects to at the first read."""
        rows = open_redis_reader(MODEL, settings)
        try:
            yield cls(rows)
        finally:
            await rows.close()

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return await self._rows.applied(EVENTS)

    async def leases(self, space: str, worker: int) -> list[Lease]:
        """Every lease of a worker number, the latest first."""
        rows = await self._rows.bucket(LEASES.name, {"space": space, "worker": worker})
        order = rows.drop("_partition", "space").sort(["from_ms", "offset"], descending=True)
        return [Lease(**row) for row in order.to_dicts()]
