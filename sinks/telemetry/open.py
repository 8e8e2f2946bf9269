"""Opens all readers of telemetry, by the names that the routes ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from sinks import telemetry as store
from sinks.open import open_redis_reader, open_s3_reader
from sinks.readers.clickhouse import ClickHouseReader
from sinks.telemetry.alerts import AlertReader
from sinks.telemetry.lines import LineReader
from sinks.telemetry.metrics import MetricReader
from sinks.telemetry.rollups import RollupReader
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel

ROWS_MAX = 2_000_000
"""Samples of one PromQL query, and counts of one span."""


@asynccontextmanager
async def open_telemetry(settings: Settings) -> AsyncIterator[dict[str, Any]]:
    """The readers; each connects at its first read."""
    url = settings.clickhouse.url.get_secret_value()

    def hot(model: ReadModel) -> ClickHouseReader:
        return ClickHouseReader(model, url, rows_max=ROWS_MAX)

    async with AsyncExitStack() as opened:
        lines = LineReader(hot(store.LOGS), open_s3_reader(store.COLD, settings))
        opened.push_async_callback(lines.close)
        rollups = RollupReader(hot(store.ROLLUPS), lines)
        opened.push_async_callback(rollups.close)
        metrics = MetricReader(hot(store.SAMPLED), hot(store.METRICS), rollups)
        opened.push_async_callback(metrics.close)
        alerts = AlertReader(open_redis_reader(store.ALERTED, settings))
        opened.push_async_callback(alerts.close)
        yield {
            "telemetry": lines,
            "telemetry-rollups": rollups,
            "telemetry-metrics": metrics,
            "telemetry-alerts": alerts,
        }
