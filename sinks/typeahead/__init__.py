"""Where searches are stored, and what is suggested from.

`typeahead-counts` (S3): searches by hour and text, what snapshots are built from.
`typeahead-recent` (Redis): what is searched for by the minute, and by each user. A snapshot
(`index`, `snapshots`) is one immutable object in S3 that every process maps into its memory;
`suggester` answers from all of them.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import Ranking, ReadModel, Table

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
WEEK_MS = 7 * 24 * HOUR_MS
KEEP_MS = 10 * WEEK_MS
"""Ten half-lives of the default: what is older weighs less than a thousandth."""
TRENDING_KEEP_MS = HOUR_MS
OWN_KEEP_MS = 5 * WEEK_MS

HOURS = Table(
    name="hours",
    key={"hour_ms": pl.Int64, "text": pl.String},
    values={"searches": pl.Int64},
    bucket=("hour_ms",),
    time="hour_ms",
)
"""Of each hour, how many people searched for a text; log partitions add up."""

COUNTS = ReadModel("typeahead-counts", (HOURS,))

MINUTES = Ranking(name="minutes", board={"minute_ms": pl.Int64}, member="text", time="minute_ms")
"""Of each minute, how many people searched for a text. Searches are partitioned by user, so a text
may stand in several log partitions; they add up.
"""

OWN = Table(
    name="own",
    key={"user_id": pl.String, "week_ms": pl.Int64, "text": pl.String},
    values={"searched_ms": pl.Int64},
    bucket=("user_id", "week_ms"),
    time="week_ms",
)
"""What a user has searched for, and when last; in weeks, so that it can be forgotten."""

RECENT = ReadModel("typeahead-recent", (MINUTES, OWN))
