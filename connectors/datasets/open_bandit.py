"""Impressions and clicks of a fashion shop's recommendations (Open Bandit, the obp package).

Six logs: two policies that chose the items (`random` and `bts`, Bernoulli Thompson sampling) on
three pages (all, men, women), 10,000 impressions each.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

FEATURES = tuple(f"user_feature_{n}" for n in range(4))
SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "campaign": pl.String,
    "row": pl.Int64,
    "timestamp": pl.Datetime("us", "UTC"),
    "item_id": pl.Int64,
    "click": pl.Int64,
    **dict.fromkeys(FEATURES, pl.String),
}
"""`campaign` is policy/page, `row` the row's number in its log, `click` is 0 or 1."""


def frame(files: Mapping[str, bytes]) -> pl.DataFrame:
    """All impressions by time (ties by campaign and row), with the columns of `SCHEMA`."""
    parts = []
    for member, content in files.items():
        policy, page = member.split("/")[-3:-1]
        read = pl.read_csv(
            content,
            columns=["timestamp", "item_id", "click", *FEATURES],
            schema_overrides={"timestamp": pl.String, **dict.fromkeys(FEATURES, pl.String)},
        ).with_row_index("row")
        time = pl.col("timestamp").str.to_datetime("%Y-%m-%d %H:%M:%S%.f%z", time_unit="us")
        parts.append(
            read.with_columns(pl.lit(f"{policy}/{page}").alias("campaign"), time)
            .select(*SCHEMA)
            .cast(pl.Schema(SCHEMA))
        )
    return pl.concat(parts).sort("timestamp", "campaign", "row")
