"""What a batch changes in the store, of what the fold has worked out."""

from __future__ import annotations

import polars as pl

from sinks import feed as store
from streams.feed.graph import PAIR
from streams.runtime.sink import Changes, Delete, Insert, Table, Upsert, Withdraw

HIDES = {
    "muted": ("muted", True),
    "unmuted": ("muted", False),
    "blocked": ("blocked", True),
    "unblocked": ("blocked", False),
}


def feeds(entries: pl.DataFrame, turned: pl.DataFrame) -> list[Changes]:
    """What is put into feeds and taken out of them, in rounds: what comes into a feed between two
    withdrawals is one insertion, because the feed is cut to size before the second of them.
    """
    gone = turned.filter(~pl.col("follows")).select("user", "author", "at").sort("at")
    if gone.is_empty():
        return _inserts(entries)
    nth = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("user")
    gone = gone.with_columns(nth.alias("round"))
    entries = (
        entries.sort("at")
        .join_asof(gone.drop("author"), on="at", by="user", check_sortedness=False)
        .with_columns(pl.col("round").fill_null(0))
    )
    changes: list[Changes] = []
    for turn in range(gone["round"].sort()[-1] + 1):
        changes += _inserts(entries.filter(pl.col("round") == turn))
        out = gone.filter(pl.col("round") == turn + 1).select("user", "author")
        if out.height:
            changes.append(Withdraw(store.FEEDS, out))
    return changes


def _inserts(entries: pl.DataFrame) -> list[Changes]:
    rows = entries.select(*store.FEEDS.columns)
    return [Insert(store.FEEDS, rows)] if rows.height else []


def outbox(posts: pl.DataFrame) -> list[Changes]:
    """Every post, at its author."""
    rows = posts.select(pl.col("author").alias("owner"), "author", "post_id", "time_ms")
    return [Insert(store.OUTBOX, rows)] if rows.height else []


def follows(now: pl.DataFrame, turned: pl.DataFrame, opened: pl.DataFrame) -> list[Changes]:
    """The follows that began, ended, or whose user was there."""
    pairs = turned.select(PAIR).unique()
    ended = pairs.join(now, on=PAIR, how="anti").select(*store.FOLLOWS.key)
    touched = pl.concat(
        [now.join(pairs, on=PAIR, how="semi"), now.join(opened, on="user", how="semi")]
    ).unique()
    return [*_deletes(store.FOLLOWS, ended), *_upserts(store.FOLLOWS, touched)]


def hidden(relations: pl.DataFrame) -> list[Changes]:
    """Mutes and blocks: the last word of each user about each author."""
    told = relations.filter(pl.col("change").is_in(list(HIDES)))
    if told.is_empty():
        return []
    change = pl.col("change")
    last = (
        told.with_columns(
            change.replace_strict({c: how for c, (how, _) in HIDES.items()}).alias("how"),
            change.replace_strict({c: on for c, (_, on) in HIDES.items()}).alias("on"),
        )
        .sort("at")
        .unique((*PAIR, "how"), keep="last", maintain_order=True)
    )
    changes: list[Changes] = []
    for table in (store.HIDDEN, store.BLOCKERS):
        rows = last if table is store.HIDDEN else last.filter(pl.col("how") == "blocked")
        changes += _upserts(table, rows.filter("on").select(*table.key))
        changes += _deletes(table, rows.filter(~pl.col("on")).select(*table.key))
    return changes


def wide(authors: pl.DataFrame) -> list[Changes]:
    """Authors whose posts are fetched from now on."""
    return _upserts(store.WIDE, authors.select("author"))


def _upserts(table: Table, rows: pl.DataFrame) -> list[Changes]:
    return [Upsert(table, rows.select(*table.columns))] if rows.height else []


def _deletes(table: Table, keys: pl.DataFrame) -> list[Changes]:
    return [Delete(table, keys)] if keys.height else []
