"""`bench feed`: how many insertions into feeds a second the fan-out makes, by one core.

One log partition: a million follows of 5,000 authors, followers by Zipf's law with 200 on average
and nobody wide, as the estimate of the seed has it; then posts by random authors, in batches as the
product cuts them. Once the rules alone (the fold, as a lane calls it), once with their writes into
the local Redis. The rules are counted by processor time over all threads, so that "by one core" is
what it says; what the store takes is by the clock.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from schemas.feed.events import EVENTS, FEED_OPENED, POST_PUBLISHED, RELATION_CHANGED
from sinks import feed as store
from sinks.open import open_sink
from streams.feed import BATCH_ROWS_MAX
from streams.feed.fold import FanOut
from streams.runtime.batch import Batch
from streams.runtime.position import Position
from streams.runtime.settings import Feed, Settings
from streams.runtime.sink import Insert, Write
from tests.bench import report

INSERTIONS = 4_000_000
FOLLOWS = 1_000_000
AUTHORS = 5_000
USERS = 200_000
FOLLOWERS_MAX = 10_000
STORED_SHARE = 8
"""The store gets so small a part of the insertions."""
NOON_MS = 1_767_268_800_000


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. About 15 s a run."""
    insertions = records or INSERTIONS
    rules = [_run(insertions) for _ in range(runs)]
    mixed = [_run(insertions, mixed=True) for _ in range(runs)]
    share = max(1, insertions // STORED_SHARE)
    stored = [_run(share, settings=Settings.read()) for _ in range(runs)]
    figures = {
        "rules": _median(rules, "per_cpu_s"),
        "rules_mixed": _median(mixed, "per_cpu_s"),
        "with_redis": _median(stored, "per_s"),
    }
    rows = [
        ["rules, posts alone, a second of one core", figures["rules"]],
        ["rules, with follows and returns, a second of one core", figures["rules_mixed"]],
        ["with the writes into Redis, a second", figures["with_redis"]],
    ]
    report.table("Insertions into feeds", ["", "a second"], rows)
    result = {
        "insertions": rules[0]["insertions"],
        "posts": rules[0]["posts"],
        "follows": FOLLOWS,
        "runs": runs,
        "figures": figures,
    }
    report.save("feed", result)
    return result


def _run(
    insertions: int, *, mixed: bool = False, settings: Settings | None = None
) -> dict[str, float]:
    """Fold batches until there are so many insertions; with `settings` also write them."""
    chance = np.random.default_rng(7)
    fold = FanOut(lambda: Feed(followers_max=FOLLOWERS_MAX))
    state, made, posts, cpu_s, wall_s = fold.start(_graph(chance)), 0, 0, 0.0, 0.0
    model = replace(store.HOME, name=f"bench.feed-{uuid.uuid4().hex[:8]}")
    sink = None if settings is None else open_sink("redis", model, settings)
    position: Position | None = None
    try:
        if sink is not None:
            sink.prepare(2)
        for batch in _batches(chance, mixed=mixed):
            began, began_cpu = time.perf_counter(), time.process_time()
            state, outcome = fold.fold(state, batch)
            if sink is not None:
                after = Position.start("bench", batch.next_offset)
                sink.write(2, Write(EVENTS.name, 0, position, after, outcome.changes))
                position = after
            cpu_s += time.process_time() - began_cpu
            wall_s += time.perf_counter() - began
            posts += batch.height
            made += sum(
                one.rows.height
                for one in outcome.changes
                if isinstance(one, Insert) and one.timeline.name == store.FEEDS.name
            )
            if made >= insertions:
                break
    finally:
        if sink is not None:
            sink.drop(2)
            sink.close()
    return {
        "insertions": made,
        "posts": posts,
        "per_cpu_s": made / cpu_s,
        "per_s": made / wall_s,
    }


def _graph(chance: np.random.Generator) -> dict[str, pl.DataFrame]:
    """What a partition restores: the follows, by Zipf's law, and nothing else."""
    weight = 1.0 / np.arange(20, AUTHORS + 20)
    authors = chance.choice(AUTHORS, FOLLOWS, p=weight / weight.sum())
    users = chance.integers(0, USERS, FOLLOWS)
    follows = pl.DataFrame({"user": _names("user", users), "author": _names("author", authors)})
    follows = follows.unique().with_columns(pl.lit(NOON_MS, pl.Int64).alias("seen_ms"))
    most = follows.group_by("author").len()["len"].sort()[-1]
    assert most <= FOLLOWERS_MAX
    return {
        "follows": follows,
        "wide": pl.DataFrame(schema=store.WIDE.columns),
        "outbox": pl.DataFrame(schema=store.OUTBOX.columns),
    }


def _batches(chance: np.random.Generator, *, mixed: bool) -> Iterator[Batch]:
    """Posts by authors picked evenly, a millisecond apart; `mixed`: three of ten rows are users who
    come back to read, one is a follow or an unfollow.
    """
    offset = 0
    while True:
        at = np.arange(offset, offset + BATCH_ROWS_MAX)
        offset += BATCH_ROWS_MAX
        authors, users = chance.integers(0, AUTHORS, at.size), chance.integers(0, USERS, at.size)
        rows = pl.DataFrame(
            {
                "author": _names("author", authors),
                "user": _names("user", users),
                "post_id": _names("post", at),
                "change": np.where(at % 2, "followed", "unfollowed"),
                "event_time": pl.Series(NOON_MS + at).cast(pl.Datetime("ms", "UTC")),
                "_offset": at,
                "_watermark": NOON_MS + at,
            }
        )
        kind = chance.integers(0, 10, at.size) if mixed else np.full(at.size, 9)
        frames = {
            POST_PUBLISHED.fullname: rows.filter(pl.Series(kind > 3)).drop("user", "change"),
            RELATION_CHANGED.fullname: rows.filter(pl.Series(kind == 3)).drop("post_id"),
            FEED_OPENED.fullname: rows.filter(pl.Series(kind < 3)).drop("post_id", "change"),
        }
        frames = {name: frame for name, frame in frames.items() if frame.height}
        yield Batch(EVENTS, 0, int(at[0]), offset, frames, NOON_MS + offset)


def _names(kind: str, numbers: Any) -> pl.Series:
    return pl.select(pl.format(f"{kind}-{{}}", pl.Series(numbers))).to_series()


def _median(runs: list[dict[str, float]], figure: str) -> float:
    return float(pl.Series([run[figure] for run in runs]).median())  # type: ignore[arg-type]
