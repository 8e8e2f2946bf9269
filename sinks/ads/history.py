"""Reads of `ads-events`: every single event, to settle what came late and to count again."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sinks.ads import TOTALS
from sinks.ads.windows import MINUTE_MS, AdsReader, Applied, Totals
from sinks.drivers.clickhouse.errors import MissingTable
from streams.runtime.sink import SinkUnavailable

if TYPE_CHECKING:
    from sinks.readers.clickhouse import ClickHouseReader

BEHIND_MS, LOOK_MS = 5_000, 100
"""How long a recount waits for the history to get as far as the windows, and between looks."""


@dataclass(frozen=True)
class Adjustment(Totals):
    """What came too late for a minute, to be settled apart."""

    start_ms: int


@dataclass(frozen=True)
class Audit:
    """Two counts of the same events: by the stream, and from the history."""

    stream: Totals
    recount: Totals
    difference: Totals


class AdsHistory:
    """Questions to every single event. One instance serves any number of concurrent requests."""

    def __init__(self, events: ClickHouseReader) -> None:
        self._events = events

    async def close(self) -> None:
        """Release the connections."""
        await self._events.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return await self._events.applied()

    async def adjustments(self, campaign_id: str, from_ms: int, to_ms: int) -> list[Adjustment]:
        """Minutes of a campaign with `from_ms <= start < to_ms` that events came too late for.

        An event is in it once, however often it came, and not at all where it also came in time.
        """
        span: dict[str, Any] = {"campaign_id": campaign_id, "from_ms": from_ms, "to_ms": to_ms}
        try:
            if (await self._events.query(_ANY_LATE, **span)).is_empty():
                return []
            found = await self._events.query(_ADJUSTMENTS, **span)
        except MissingTable:  # nothing is stored yet
            return []
        return [Adjustment(**row) for row in found.to_dicts()]

    async def recount(self, from_ms: int, to_ms: int, until: Applied) -> Totals:
        """Count the distinct applied events of a span again, below these offsets. Raises
        `SinkUnavailable` when the history does not get there in `BEHIND_MS`.
        """
        for _ in range(BEHIND_MS // LOOK_MS):
            applied = await self.applied()
            if all(applied.get(at, 0) >= offset for at, offset in until.items()):
                break
            await asyncio.sleep(LOOK_MS / 1_000)
        else:
            raise SinkUnavailable("the history of events has not got as far as the windows")
        if not until:
            return Totals(0, 0, 0)
        stop = [0] * (1 + max(partition for _, partition in until))
        for (_, partition), offset in until.items():
            stop[partition] = offset
        found = await self._events.query(_RECOUNT, from_ms=from_ms, to_ms=to_ms, stop=stop)
        return Totals(**found.to_dicts()[0])


# A reused id has `~` and the offset behind it; a repeat of that event has not.
_EVENT = """
    if(endsWith(event_id, '~' || toString(offset)),
       substring(event_id, 1, length(event_id) - length(toString(offset)) - 1), event_id) AS id,
    kind, user_id, campaign_id, ad_id, event_time, country, cost_micros, user_agent, impression_id
"""
_DISTINCT = """
    id, kind, user_id, campaign_id, ad_id, event_time, country, cost_micros, user_agent,
    impression_id
"""
_COUNTED = """
    toInt64(countIf(kind = 'impression')) AS impressions,
    toInt64(countIf(kind = 'click')) AS clicks,
    toInt64(ifNull(sum(cost_micros), 0)) AS cost_micros
"""
_SPAN = """
    event_time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND event_time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
"""
_RECOUNT = f"""
SELECT {_COUNTED} FROM (
    SELECT {_EVENT} FROM {{events:Identifier}} FINAL
    WHERE fate = 'applied' AND {_SPAN} AND offset < {{stop:Array(Int64)}}[_partition + 1]
    GROUP BY {_DISTINCT}
)
"""  # noqa: S608 - made of constants
# Most campaigns have none most days, and that is asked in a fifth of the time. Without FINAL it may
# also see a row that was replaced; then the question behind it says that there is nothing.
_ANY_LATE = f"""
SELECT 1 FROM {{events:Identifier}}
WHERE fate = 'late' AND campaign_id = {{campaign_id:String}} AND {_SPAN} LIMIT 1
"""  # noqa: S608 - made of constants
_ADJUSTMENTS = f"""
SELECT assumeNotNull(intDiv(toUnixTimestamp64Milli(event_time), {MINUTE_MS}) * {MINUTE_MS})
       AS start_ms, {_COUNTED}
FROM (
    SELECT {_EVENT} FROM {{events:Identifier}} FINAL
    WHERE campaign_id = {{campaign_id:String}} AND {_SPAN}
    GROUP BY {_DISTINCT} HAVING countIf(fate != 'late') = 0
)
GROUP BY start_ms ORDER BY start_ms
"""  # noqa: S608 - made of constants


class AdsAudit:
    """The windows against the history: what the stream counted, counted again."""

    def __init__(self, windows: AdsReader, history: AdsHistory) -> None:
        self._windows = windows
        self._history = history

    async def applied(self) -> Applied:
        """How far both are folded."""
        windows, history = await asyncio.gather(self._windows.applied(), self._history.applied())
        return {at: min(windows[at], history[at]) for at in windows.keys() & history.keys()}

    async def totals(self, from_ms: int, to_ms: int) -> Audit:
        """Both counts of the hours that begin in the span, at the same positions. Raises
        `SinkUnavailable` where one store moves too fast or the other lags.
        """
        stream, until = await self._windows.settled(from_ms, to_ms)
        recount = await self._history.recount(from_ms, to_ms, until)
        difference = {name: getattr(stream, name) - getattr(recount, name) for name in TOTALS}
        return Audit(stream, recount, Totals(**difference))
