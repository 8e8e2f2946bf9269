"""From counts to ranks: pure, exact, and the same on every machine.

A search weighs half of what it did after every half-life of *event time*: the newest hour counted
is now, so a build of the same counts is the same build, whenever it is made. Weights are integers;
within a half-life they fall in a straight line, which is at most 6 % above the curve.
"""

from __future__ import annotations

import polars as pl

from schemas.typeahead.folding import folded
from sinks.typeahead import HOUR_MS, KEEP_MS
from sinks.typeahead.index import ONE, TERMS

HALF_LIFE_HOURS = 7 * 24
PEOPLE_MIN = 3
"""What fewer people have searched for is not suggested: it is rare, a typing error, or a secret."""


def weight(age_hours: int, half_life_hours: int) -> int:
    """What a search of that age weighs; `ONE` for a new one."""
    halvings, rest = divmod(age_hours, half_life_hours)
    return (ONE - ONE * rest // (2 * half_life_hours)) >> halvings


def weighed(
    counts: pl.LazyFrame, now_ms: int, half_life_hours: int = HALF_LIFE_HOURS
) -> pl.LazyFrame:
    """Counts (`hour_ms`, `text`, `searches`) → `text`, `score` and `searches` of each text, where
    `now_ms` is the newest hour there is.
    """
    ages = range(KEEP_MS // HOUR_MS)
    weights = pl.LazyFrame(
        {
            "hour_ms": [now_ms - age * HOUR_MS for age in ages],
            "weight": [weight(age, half_life_hours) for age in ages],
        },
        schema={"hour_ms": pl.Int64, "weight": pl.Int64},
    )
    score = (pl.col("searches") * pl.col("weight")).sum().alias("score")
    return counts.join(weights, on="hour_ms").group_by("text").agg(score, pl.col("searches").sum())


def ranked(texts: pl.DataFrame, people_min: int = PEOPLE_MIN) -> pl.DataFrame:
    """Weighed texts → what to suggest (`TERMS`), by term. Texts that fold alike are one term, which
    is shown as most people wrote it.
    """
    terms = pl.Series("term", [folded(text) for text in texts["text"]], pl.String)
    shown = pl.col("text").sort_by("score", "text", descending=[True, False]).first()
    return (
        texts.with_columns(terms)
        .filter(pl.col("term") != "")
        .group_by("term")
        .agg(shown, pl.col("score").sum(), pl.col("searches").sum())
        .filter((pl.col("searches") >= people_min) & (pl.col("score") > 0))
        .select(*TERMS)
        .sort("term")
    )
