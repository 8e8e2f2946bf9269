"""Where the limiter's numbers are stored: what was decided by rule and minute, in Redis.

Beside that read model are the counters themselves (`sinks.limiter.counters`). They are no read
model: they are decided on, so they cannot wait for the log. What was decided is logged, and lost
counters are put back from it (`headrace limiter restore`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from streams.runtime.sink import ReadModel, Table

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
COUNTS = ("admitted", "refused", "units")

MINUTES = Table(
    name="minutes",
    key={"rule_id": pl.String, "hour_ms": pl.Int64, "minute_ms": pl.Int64, "shadow": pl.Boolean},
    values=dict.fromkeys(COUNTS, pl.Int64),
    bucket=("rule_id", "hour_ms"),
    time="hour_ms",
)
"""What a rule said of requests, and the units it charged; while it was a shadow on rows of their
own, where `refused` is what it would have refused."""

DECIDED = ReadModel("limiter-decided", (MINUTES,))


@dataclass(frozen=True)
class Minute:
    """What a rule decided in a minute."""

    start_ms: int
    shadow: bool
    admitted: int
    refused: int
    units: int


class DecidedReader:
    """What rules decided, merged over all log partitions."""

    def __init__(self, decided: RedisReader) -> None:
        self._decided = decided

    async def close(self) -> None:
        """Release the connections."""
        await self._decided.close()

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return await self._decided.applied()

    async def minutes(self, rule_id: str, from_ms: int, to_ms: int) -> list[Minute]:
        """Minutes with `from_ms <= start < to_ms` in which the rule was asked, ascending."""
        hours = range(from_ms // HOUR_MS * HOUR_MS, to_ms, HOUR_MS)
        buckets = [{"rule_id": rule_id, "hour_ms": hour} for hour in hours]
        rows = await self._decided.buckets(MINUTES.name, buckets)
        rows = rows.filter(pl.col("minute_ms").is_between(from_ms, to_ms, closed="left"))
        by = ("minute_ms", "shadow")
        found = rows.group_by(by).agg(pl.col(COUNTS).sum()).sort(by)
        return [Minute(**row) for row in found.rename({"minute_ms": "start_ms"}).to_dicts()]
