"""Who follows whom, row by row of the log, as columns: the same whatever batches it comes in.

A **span** is a stretch of the log over which somebody follows an author: `(since, until)`, both
outside. All that a batch asks of the graph is asked of spans, so a post in the middle of a batch
meets the followers it had at its own offset. The clock is the watermark just after a row: it
never goes back, and depends on the log alone.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.watermark import milliseconds

BEFORE, NEVER = -1, 2**62
PAIR = ("author", "user")
FOLLOWING = {"followed": True, "unfollowed": False, "blocked": False}


def turns(relations: pl.DataFrame, follows: pl.DataFrame) -> pl.DataFrame:
    """The changes that change something, in offset order: `author, user, follows, at, clock`. To
    follow twice is to follow once.
    """
    does = pl.col("change").replace_strict(FOLLOWING, default=None, return_dtype=pl.Boolean)
    told = relations.with_columns(does.alias("follows")).filter(pl.col("follows").is_not_null())
    known = follows.join(told, on=PAIR, how="semi").select(*PAIR, pl.lit(value=True).alias("did"))
    before = pl.col("follows").shift(1).over(PAIR, order_by="at")
    return (
        told.join(known, on=PAIR, how="left")
        .with_columns(before.fill_null(pl.col("did")).fill_null(value=False).alias("did"))
        .filter(pl.col("follows") != pl.col("did"))
        .sort("at")
        .select(*PAIR, "follows", "at", "clock")
    )


def spans(follows: pl.DataFrame, turned: pl.DataFrame) -> pl.DataFrame:
    """`author, user, seen_ms, since, until` of all who follow before or within the batch."""
    always = follows.with_columns(
        pl.lit(BEFORE, pl.Int64).alias("since"), pl.lit(NEVER, pl.Int64).alias("until")
    )
    if turned.is_empty():
        return always
    ended = turned.group_by(PAIR).agg(pl.col("at").first(), pl.col("follows").first())
    ended = ended.filter(~pl.col("follows")).drop("follows")
    until = pl.col("at").shift(-1).over(PAIR, order_by="at").fill_null(NEVER)
    begun = turned.with_columns(until.alias("until")).filter("follows")
    old = always.join(ended, on=PAIR, how="left").with_columns(
        pl.coalesce("at", "until").alias("until")
    )
    new = begun.rename({"clock": "seen_ms", "at": "since"})
    return pl.concat([old.drop("at"), new.select(always.columns)])


def widened(
    follows: pl.DataFrame, turned: pl.DataFrame, wide: pl.DataFrame, followers_max: int
) -> pl.DataFrame:
    """`author, wide_at` of the authors who first have more than `followers_max` followers within
    the batch. One who has been wide stays so: what was fetched once is never half pushed.
    """
    old = follows.join(turned, on="author", how="semi").group_by("author").len("had")
    step = pl.when("follows").then(1).otherwise(-1).cum_sum().over("author", order_by="at")
    return (
        turned.join(wide, on="author", how="anti")
        .join(old, on="author", how="left")
        .with_columns((pl.col("had").fill_null(0).cast(pl.Int64) + step).alias("has"))
        .filter(pl.col("has") > followers_max)
        .group_by("author")
        .agg(pl.col("at").min().alias("wide_at"))
    )


def standing(stretches: pl.DataFrame, opened: pl.DataFrame) -> pl.DataFrame:
    """The follows that are left after the batch, as `store.FOLLOWS` has them."""
    last = opened.group_by("user").agg(pl.col("clock").max())
    seen_ms = pl.max_horizontal("seen_ms", "clock").alias("seen_ms")
    left = stretches.filter(pl.col("until") == NEVER).join(last, on="user", how="left")
    return left.select("user", "author", seen_ms)


def seen(asked: pl.DataFrame, opened: pl.DataFrame) -> pl.DataFrame:
    """`asked` (`user, at, seen_ms` and more) with `seen_ms` as it was just before `at`."""
    if opened.is_empty():
        return asked
    latest = opened.select("user", "at", pl.col("clock").alias("opened_ms")).sort("at")
    return (
        asked.sort("at")
        .join_asof(
            latest,
            on="at",
            by="user",
            strategy="backward",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .with_columns(pl.max_horizontal("seen_ms", "opened_ms"))
        .drop("opened_ms")
    )


def placed(frame: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """These columns of an event's rows, with `time_ms`, `at` (the offset) and `clock`."""
    time = milliseconds(frame["event_time"]).alias("time_ms")
    return frame.select(*columns, time, pl.col(OFFSET).alias("at"), WATERMARK).select(
        pl.exclude(WATERMARK), pl.max_horizontal("time_ms", WATERMARK).alias("clock")
    )
