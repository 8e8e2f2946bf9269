"""Readers of telemetry that answer the same to everybody, as far folded as another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import polars as pl

from connectors.telemetry.intake import Intake
from sinks.telemetry.alerts import StandingAlert
from sinks.telemetry.metrics import FoundSeries, Matcher, Measure
from sinks.telemetry.query import FoundLine, LogQuery, Page, Span
from sinks.telemetry.rollups import Audit

LINE = FoundLine(
    "l", 1, 0, "pay", "pay/1", "INFO", "hello", None, None, '{"a":"b"}', 1, False, 0, 7
)


class Folded(Protocol):
    async def applied(self) -> Mapping[tuple[str, int], int]: ...


@dataclass
class FakeTelemetry:
    """All readers in one."""

    folded: Folded

    @property
    def tiers(self) -> FakeTelemetry:
        return self

    async def applied(self) -> Mapping[tuple[str, int], int]:
        return await self.folded.applied()

    async def needs_cold(self, span: Span) -> bool:
        return span.from_ms == 0

    async def search(self, query: LogQuery, span: Span, page: Page) -> Sequence[FoundLine]:
        return [LINE]

    async def since(self, query: LogQuery, after: Mapping[int, int], limit: int) -> list[FoundLine]:
        return [LINE]

    async def counts(self, span: Span, step: str) -> pl.DataFrame:
        return pl.DataFrame({"start_ms": [0], "service": ["pay"], "level": ["INFO"], "lines": [1],
                             "weight": [1]})  # fmt: skip

    async def audit(self, span: Span) -> Audit:
        return Audit(1, 1, 2)

    async def select(self, matchers: Sequence[Matcher], span: Span) -> list[FoundSeries]:
        return [FoundSeries({"__name__": "up"}, [1, 2], [1.0, None])]

    async def measures(self, matchers: Sequence[Matcher], span: Span, step: str) -> list[Any]:
        return [({"__name__": "up"}, [Measure(0, 1, 1.0, 1.0, 1.0, 1.0)])]

    async def cardinality(self, limit: int) -> Mapping[str, int]:
        return {"up": 1}

    async def of_rule(self, rule: str) -> list[StandingAlert]:
        return [StandingAlert(rule, "f", "FIRING", "{}", 1.0, 0, 1)]

    async def get(self, url: str, *, params: Any) -> httpx.Response:
        """As Prometheus."""
        return httpx.Response(200, json={"status": "success", "data": {}})


def readers(folded: Folded) -> dict[str, Any]:
    """Everything of telemetry that a server opens."""
    fake = FakeTelemetry(folded)
    parts = ("", "-rollups", "-metrics", "-alerts", "-promql")
    return {"telemetry-intake": Intake(), **{f"telemetry{part}": fake for part in parts}}
