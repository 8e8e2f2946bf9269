"""Where logs and metrics are stored; the modules beside this one read it.

- `telemetry-logs` (ClickHouse): every line of the hot time, for search.
- `telemetry-cold` (S3, Parquet): every line, for good.
- `telemetry-rollups` (ClickHouse): lines by service and level, per minute and per hour.
- `telemetry-samples` (ClickHouse): series and their samples, as they came.
- `telemetry-metrics` (ClickHouse): what each series was, per minute and per hour.
- `telemetry-alerts` (Redis): every alert as it stands.

Tiers: hot and cold fold the same topic, so both have all lines; hot forgets those before its
`expired_ms`, which depends on the log alone. A read takes, per log partition, what is before that
time from cold and the rest from hot: nothing is in both and nothing is in neither (`lines`).
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
HOT_MS = 15 * DAY_MS
COLD_MS = 366 * DAY_MS
INSTANT = pl.Datetime("ms", "UTC")

LINES = Table(
    name="lines",
    key={
        "hour_ms": pl.Int64,
        "service": pl.String,
        "event_time": INSTANT,
        "line_id": pl.String,
        "late": pl.Boolean,
    },
    values={
        "offset": pl.Int64,
        "stream": pl.String,
        "level": pl.String,
        "nanos": pl.Int32,
        "body": pl.String,
        "trace_id": pl.String,
        "span_id": pl.String,
        "labels": pl.String,
        "weight": pl.Int32,
    },
    bucket=("hour_ms",),
    time="hour_ms",
    append=True,
    indexes={"body": "text", "trace_id": "equal"},
)
"""One row a line. `late` lines came when the minute they belong to was closed: no rollup has them.
A line that was delivered in time and again too late stands twice, once under each."""

COUNTED = {"lines": pl.Int64, "weight": pl.Int64}
MINUTES = Table(
    name="minutes",
    key={"hour_ms": pl.Int64, "minute_ms": pl.Int64, "service": pl.String, "level": pl.String},
    values=COUNTED,
    bucket=("hour_ms",),
    time="hour_ms",
)
HOURS = Table(
    name="hours",
    key={"hour_ms": pl.Int64, "service": pl.String, "level": pl.String},
    values=COUNTED,
    bucket=("hour_ms",),
    time="hour_ms",
)
"""`lines` are stored lines, `weight` is how many they stand for."""

SERIES = Table(
    name="series",
    key={"name": pl.String, "series_id": pl.String},
    values={"labels": pl.String, "kind": pl.String, "unit": pl.String, "declared_ms": pl.Int64},
)
SAMPLES = Table(
    name="samples",
    key={
        "hour_ms": pl.Int64,
        "series_id": pl.String,
        "event_time": INSTANT,
        "late": pl.Boolean,
    },
    values={"value": pl.Float64},
    bucket=("hour_ms",),
    time="hour_ms",
)
"""`value` is null where the series ended; `late` as with lines."""

MEASURED = {
    "count": pl.Int64,
    "sum": pl.Float64,
    "min": pl.Float64,
    "max": pl.Float64,
    "last": pl.Float64,
    "last_ms": pl.Int64,
}
METRIC_MINUTES = Table(
    name="minutes",
    key={"hour_ms": pl.Int64, "series_id": pl.String, "minute_ms": pl.Int64},
    values=MEASURED,
    bucket=("hour_ms",),
    time="hour_ms",
)
METRIC_HOURS = Table(
    name="hours",
    key={"hour_ms": pl.Int64, "series_id": pl.String},
    values=MEASURED,
    bucket=("hour_ms",),
    time="hour_ms",
)

ALERTS = Table(
    name="alerts",
    key={"rule": pl.String, "fingerprint": pl.String},
    values={
        "state": pl.String,
        "labels": pl.String,
        "value": pl.Float64,
        "started_ms": pl.Int64,
        "changed_ms": pl.Int64,
    },
    bucket=("rule",),
)

LOGS = ReadModel("telemetry-logs", (LINES,))
COLD = ReadModel("telemetry-cold", (LINES,))
ROLLUPS = ReadModel("telemetry-rollups", (MINUTES, HOURS))
SAMPLED = ReadModel("telemetry-samples", (SERIES, SAMPLES))
METRICS = ReadModel("telemetry-metrics", (METRIC_MINUTES, METRIC_HOURS))
ALERTED = ReadModel("telemetry-alerts", (ALERTS,))
