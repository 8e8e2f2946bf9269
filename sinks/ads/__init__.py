"""Where ad traffic is stored; `windows` and `history` read it.

`ads-windows` (Redis): impressions, clicks and cost by campaign and ad per minute, and by campaign
per hour. `ads-events` (ClickHouse): every event with its fate, by log offset: the proof behind
the bill, and what ad-hoc questions are asked of.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

TOTALS = {"impressions": pl.Int64, "clicks": pl.Int64, "cost_micros": pl.Int64}

MINUTES = Table(
    name="minutes",
    key={
        "campaign_id": pl.String,
        "hour_ms": pl.Int64,
        "minute_ms": pl.Int64,
        "ad_id": pl.String,
    },
    values=TOTALS,
    bucket=("campaign_id", "hour_ms"),
    time="hour_ms",
)
"""One hash per campaign and hour: what a campaign's page reads at once."""

HOURS = Table(
    name="hours",
    key={"hour_ms": pl.Int64, "campaign_id": pl.String},
    values=TOTALS,
    bucket=("hour_ms",),
    time="hour_ms",
)
"""One hash per hour: what a ranking of campaigns reads."""

WINDOWS = ReadModel("ads-windows", (MINUTES, HOURS))

EVENTS = Table(
    name="events",
    key={"offset": pl.Int64},
    values={
        "kind": pl.String,
        "event_id": pl.String,
        "user_id": pl.String,
        "campaign_id": pl.String,
        "ad_id": pl.String,
        "event_time": pl.Datetime("ms", "UTC"),
        "country": pl.String,
        "cost_micros": pl.Int64,
        "user_agent": pl.String,
        "impression_id": pl.String,
        "fate": pl.String,
    },
    append=True,
)
"""One row per record of the log; `fate` is a `Fate`: applied, duplicate, late, filtered or
quarantined. An id that was used for other content before has `~` and the offset behind it."""

HISTORY = ReadModel("ads-events", (EVENTS,))
