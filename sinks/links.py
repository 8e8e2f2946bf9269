"""Where links and clicks are stored, and how they are read.

`links-table` (Redis) answers redirects; `links-copy` (Cassandra) has the same rows and answers
when Redis is down or has lost them. `links-clicks` (ClickHouse) has every click with its fate.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import polars as pl

from schemas.links.events import CLICKS as CLICKS_TOPIC
from schemas.links.events import EVENTS
from sinks.open import open_cassandra_reader, open_clickhouse_reader, open_redis_reader
from streams.runtime.kafka import partition_of
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel, SinkError, Table
from streams.runtime.topic import Topic

LINKS = Table(
    name="links",
    key={"code": pl.String},
    values={
        "url": pl.String,
        "owner": pl.String,
        "permanent": pl.Boolean,
        "expires_ms": pl.Int64,
        "clicks_max": pl.Int64,
        "used": pl.Int64,
        "disabled": pl.Boolean,
        "created_ms": pl.Int64,
    },
    bucket=("code",),
)
CLICKS = Table(
    name="clicks",
    key={"offset": pl.Int64},
    values={
        "code": pl.String,
        "event_time": pl.Datetime("ms", "UTC"),
        "method": pl.String,
        "country": pl.String,
        "referrer": pl.String,
        "device": pl.String,
        "user_agent": pl.String,
        "fate": pl.String,
    },
    append=True,
)
"""One row per record of the log; `fate`: applied (counted) or filtered (a bot's, or a HEAD)."""

TABLE = ReadModel("links-table", (LINKS,))
COPY = ReadModel("links-copy", (LINKS,))
HISTORY = ReadModel("links-clicks", (CLICKS,))

Applied = dict[tuple[str, int], int]
By = Literal["hour", "day", "country", "referrer", "device"]


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it stands."""

    code: str
    url: str
    owner: str
    permanent: bool
    expires_ms: int | None
    clicks_max: int | None
    used: int
    disabled: bool
    created_ms: int


@dataclass(frozen=True)
class Count:
    """Clicks that count, of one value of what was asked by."""

    value: str
    clicks: int


class Store(Protocol):
    """What any store of links must answer."""

    async def applied(self, *topics: Topic) -> Applied:
        """How far it is folded."""
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


class Rows(Store, Protocol):
    """The store that is asked first, row by row."""

    async def row(self, table: str, key: Any, partition: int) -> dict[str, Any] | None:
        """The row of a key; None where there is none."""
        ...


class Buckets(Store, Protocol):
    """The store that is asked when the first has no answer."""

    async def bucket(self, table: str, bucket: Any, partition: int | None = None) -> pl.DataFrame:
        """The rows of a bucket."""
        ...


class LinksReader:
    """Links by code, from the first store that has them."""

    def __init__(self, first: Rows, second: Buckets) -> None:
        self._first = first
        self._second = second

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[LinksReader]:
        """The reader of the real stores, which it connects to when they are first needed."""
        made = cls(open_redis_reader(TABLE, settings), open_cassandra_reader(COPY, settings))
        try:
            yield made
        finally:
            await asyncio.gather(made._first.close(), made._second.close())

    async def applied(self) -> Applied:
        """How far the first store is folded."""
        return await self._first.applied(EVENTS)

    async def link(self, code: str) -> Link | None:
        """The link; None where there is none. A first store that does not answer, or that was
        emptied, is made up for by the second. Raises `SinkError` when neither answers.
        """
        partition = partition_of(code, EVENTS.partitions)
        try:
            found = await self._first.row(LINKS.name, {"code": code}, partition)
        except SinkError:
            return await self._copy(code, partition)
        if found is not None:
            return Link(**found)
        try:
            return await self._copy(code, partition)
        except SinkError:
            # The first store is there and says no; that the second is away changes nothing.
            return None

    async def _copy(self, code: str, partition: int) -> Link | None:
        found = await self._second.bucket(LINKS.name, {"code": code}, partition)
        for row in found.drop("_partition").iter_rows(named=True):
            return Link(**row)
        return None


class ClicksReader:
    """Who clicked, when, from where, with what."""

    def __init__(self, clicks: Any) -> None:
        self._clicks = clicks

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[ClicksReader]:
        """The reader of the real store."""
        clicks = open_clickhouse_reader(HISTORY, settings)
        try:
            yield cls(clicks)
        finally:
            await clicks.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        found: Applied = await self._clicks.applied(CLICKS_TOPIC)
        return found

    async def clicks(self, code: str, by: By, from_ms: int, to_ms: int) -> list[Count]:
        """Clicks that count with `from_ms <= time < to_ms`: times ascending, else the most first.
        Hours and days (UTC) are told by their start, in RFC 3339.
        """
        if not await self.applied():
            return []
        found = await self._clicks.query(_BY[by], code=code, from_ms=from_ms, to_ms=to_ms)
        return [Count(str(row["value"]), int(row["clicks"])) for row in found.to_dicts()]


def _sql(value: str, order: str) -> str:
    return f"""
SELECT {value} AS value, toInt64(count()) AS clicks FROM {{clicks:Identifier}} FINAL
WHERE code = {{code:String}} AND fate = 'applied'
  AND event_time >= fromUnixTimestamp64Milli({{from_ms:Int64}}, 'UTC')
  AND event_time < fromUnixTimestamp64Milli({{to_ms:Int64}}, 'UTC')
GROUP BY value ORDER BY {order}
"""  # noqa: S608 - made of constants


_FORM = "'%Y-%m-%dT%H:%i:%SZ'"
_BY = {
    "hour": _sql(f"formatDateTime(toStartOfHour(assumeNotNull(event_time)), {_FORM})", "value"),
    "day": _sql(f"formatDateTime(toStartOfDay(assumeNotNull(event_time)), {_FORM})", "value"),
    **{
        name: _sql(f"assumeNotNull({name})", "clicks DESC, value LIMIT 1000")
        for name in ("country", "referrer", "device")
    },
}
