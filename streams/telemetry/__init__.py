"""Logs and metrics: every line and sample once, rolled up by minute and hour, alerts over both.

What comes late is never refused. Within the allowed lateness it amends the rollups; beyond, it is
stored all the same, marked `late`, and reported to the late topic, and readers of the rollups add
it. So the rollups equal the raw lines whatever the order of arrival.
"""

from __future__ import annotations

from schemas.telemetry.events import ALERTS, LOGS, SAMPLES
from sinks import telemetry as store
from streams.runtime.projection import Projection, System
from streams.telemetry.alerts import KeepAlerts
from streams.telemetry.lines import CountLines, KeepLines
from streams.telemetry.samples import KeepSamples, MeasureSeries

SYSTEM = System(
    name="telemetry",
    title="Logs and metrics",
    projections=(
        Projection(
            "telemetry-logs",
            LOGS,
            KeepLines(store.HOT_MS),
            store.LOGS,
            store="clickhouse",
            linger_ms=1_000,
            late_output=False,
        ),
        Projection(
            "telemetry-cold",
            LOGS,
            KeepLines(store.COLD_MS),
            store.COLD,
            store="s3",
            linger_ms=10_000,
            rows_max=65_536,
            late_output=False,
        ),
        Projection(
            "telemetry-rollups",
            LOGS,
            CountLines(),
            store.ROLLUPS,
            store="clickhouse",
            linger_ms=1_000,
        ),
        Projection(
            "telemetry-samples",
            SAMPLES,
            KeepSamples(),
            store.SAMPLED,
            store="clickhouse",
            linger_ms=1_000,
            late_output=False,
        ),
        Projection(
            "telemetry-metrics",
            SAMPLES,
            MeasureSeries(),
            store.METRICS,
            store="clickhouse",
            linger_ms=1_000,
        ),
        Projection("telemetry-alerts", ALERTS, KeepAlerts(), store.ALERTED, store="redis"),
    ),
)
