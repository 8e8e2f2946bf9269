"""Reads of alerts as they stand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.telemetry import ALERTS
from sinks.telemetry.lines import Applied

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader


@dataclass(frozen=True)
class StandingAlert:
    """An alert: what it last became, and when its condition first held."""

    rule: str
    fingerprint: str
    state: str
    labels: str
    value: float
    started_ms: int
    changed_ms: int


class AlertReader:
    """Alerts by rule."""

    def __init__(self, alerts: RedisReader) -> None:
        self._alerts = alerts

    async def close(self) -> None:
        """Release the connections."""
        await self._alerts.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return {at: p.next_offset for at, p in (await self._alerts.positions()).items()}

    async def of_rule(self, rule: str) -> list[StandingAlert]:
        """All alerts that a rule ever had, by fingerprint."""
        found = await self._alerts.bucket(ALERTS.name, {"rule": rule})
        rows = found.select(*ALERTS.columns).sort("fingerprint")
        return [StandingAlert(**row) for row in rows.to_dicts()]
