"""Reads of `ads-windows`: totals by minute and hour, merged over all log partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from schemas.ads.events import EVENTS
from sinks.ads import HOURS, MINUTES, TOTALS
from streams.runtime.position import NO_WATERMARK
from streams.runtime.sink import SinkUnavailable

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
LOOKS = 20
"""Looks at the windows in search of a moment in which a partition stands still."""

Applied = dict[tuple[str, int], int]
"""Topic and partition → the first offset not folded yet."""
By = Literal["impressions", "clicks", "cost_micros"]


@dataclass(frozen=True)
class Totals:
    """What was applied; cost in millionths of the currency's unit."""

    impressions: int
    clicks: int
    cost_micros: int


@dataclass(frozen=True)
class Minute(Totals):
    """What a campaign had in a minute; `final`: no event can change it any more."""

    start_ms: int
    final: bool


@dataclass(frozen=True)
class AdTotals(Totals):
    """What an ad had."""

    ad_id: str


@dataclass(frozen=True)
class CampaignTotals(Totals):
    """What a campaign had."""

    campaign_id: str


class AdsReader:
    """What campaigns and ads had. One instance serves any number of concurrent requests."""

    def __init__(self, windows: RedisReader) -> None:
        self._windows = windows

    async def close(self) -> None:
        """Release the connections."""
        await self._windows.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return await self._windows.applied()

    async def minutes(self, campaign_id: str, from_ms: int, to_ms: int) -> list[Minute]:
        """Minutes with `from_ms <= start < to_ms` that have anything, ascending."""
        watermark_ms = await self._watermark_ms()
        rows = await self._minutes(campaign_id, from_ms, to_ms)
        ends_ms = pl.col("minute_ms") + MINUTE_MS + EVENTS.allowed_lateness_ms
        found = _sums(rows, "minute_ms").sort("minute_ms")
        found = found.with_columns((ends_ms <= watermark_ms).alias("final"))
        return [Minute(**row) for row in found.rename({"minute_ms": "start_ms"}).to_dicts()]

    async def top_ads(
        self, campaign_id: str, by: By, n: int, from_ms: int, to_ms: int
    ) -> list[AdTotals]:
        """The `n` ads of a campaign with the most in these minutes; of equal ones by name."""
        rows = await self._minutes(campaign_id, from_ms, to_ms)
        return [AdTotals(**row) for row in _most(rows, "ad_id", by, n).to_dicts()]

    async def top_campaigns(self, by: By, n: int, from_ms: int, to_ms: int) -> list[CampaignTotals]:
        """The `n` campaigns with the most in the hours that begin in the span; of equal ones by
        name.
        """
        rows = await self._hours(from_ms, to_ms)
        return [CampaignTotals(**row) for row in _most(rows, "campaign_id", by, n).to_dicts()]

    async def settled(self, from_ms: int, to_ms: int) -> tuple[Totals, Applied]:
        """Totals of all campaigns in the hours that begin in the span, and exactly the positions
        they are true for. Raises `SinkUnavailable` when a partition moved during every look.
        """
        until: Applied = {}
        parts: list[pl.DataFrame] = []
        for _ in range(LOOKS):
            before, rows, after = (
                await self.applied(),
                await self._hours(from_ms, to_ms),
                await self.applied(),
            )
            still = {at for at, offset in after.items() if before.get(at) == offset} - until.keys()
            until |= {at: after[at] for at in still}
            parts.append(rows.filter(pl.col("_partition").is_in([p for _, p in still])))
            if until.keys() == after.keys():
                return Totals(**pl.concat(parts).select(_SUMS).to_dicts()[0]), until
        raise SinkUnavailable(f"a partition moved during each of {LOOKS} looks")

    async def _watermark_ms(self) -> int:
        """Event time that all partitions have reached; a campaign may be on each of them."""
        positions = await self._windows.positions()
        if len(positions) < EVENTS.partitions:
            return NO_WATERMARK
        return min(position.watermark_ms for position in positions.values())

    async def _minutes(self, campaign_id: str, from_ms: int, to_ms: int) -> pl.DataFrame:
        buckets = [{"campaign_id": campaign_id, "hour_ms": h} for h in _hours(from_ms, to_ms)]
        rows = await self._windows.buckets(MINUTES.name, buckets)
        return rows.filter(pl.col("minute_ms").is_between(from_ms, to_ms, closed="left"))

    async def _hours(self, from_ms: int, to_ms: int) -> pl.DataFrame:
        buckets = [{"hour_ms": h} for h in _hours(from_ms, to_ms)]
        rows = await self._windows.buckets(HOURS.name, buckets)
        return rows.filter(pl.col("hour_ms").is_between(from_ms, to_ms, closed="left"))


_SUMS = [pl.col(name).sum() for name in TOTALS]


def _sums(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    return rows.group_by(by).agg(_SUMS)


def _most(rows: pl.DataFrame, key: str, by: By, n: int) -> pl.DataFrame:
    most = _sums(rows, key).filter(pl.col(by) > 0)
    return most.sort([by, key], descending=[True, False]).head(n)


def _hours(from_ms: int, to_ms: int) -> range:
    """The starts of the hours that the span touches."""
    return range(from_ms // HOUR_MS * HOUR_MS, to_ms, HOUR_MS)
