"""Events → feeds: each post goes to who follows its author at that moment, as a join of columns.

- Followers who have not been there for `active_days` are left out; when they come back their feed
  is filled from the newest posts of whom they follow.
- Authors with more than `followers_max` followers are wide: their posts go to nobody's feed, and
  are fetched when it is read.
- A follow fills the feed with the author's newest posts, an unfollow or a block takes them out.
- A post that is removed stays in feeds as an id that leads nowhere; a mute hides, when read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from schemas.feed.events import FEED_OPENED, POST_PUBLISHED, POST_REMOVED, RELATION_CHANGED
from sinks import feed as store
from sinks.drivers.rows import encoded
from streams.feed import changes, graph
from streams.feed.graph import BEFORE, NEVER, PAIR
from streams.runtime.batch import Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.settings import Feed
from streams.runtime.sink import Changes

_SLACK: Final = 10_000
"""Rows that the outbox may have too many before it is trimmed."""
_CHUNKS_MAX: Final = 64
"""Many small pieces of a frame are slow to look through, and to join them is slow each time."""
ENTRY = ("user", "author", "post_id", "time_ms", "at")


@dataclass(frozen=True)
class State:
    """What a partition knows of its authors; columns as stored. `outbox` has all posts of
    `store.OUTBOX`, and some more that nobody needs: `trimmed` rows are left after each trim.
    """

    follows: pl.DataFrame
    wide: pl.DataFrame
    outbox: pl.DataFrame
    trimmed: int


@dataclass(frozen=True)
class Told:
    """The rows of a batch by what they are, each with `at` and `clock`."""

    posts: pl.DataFrame
    relations: pl.DataFrame
    opened: pl.DataFrame

    @classmethod
    def of(cls, batch: Batch) -> Told:
        return cls(
            graph.placed(batch.of(POST_PUBLISHED.fullname), "author", "post_id"),
            graph.placed(batch.of(RELATION_CHANGED.fullname), *PAIR, "change"),
            graph.placed(batch.of(FEED_OPENED.fullname), "user"),
        )

    def about(self, follows: pl.DataFrame) -> pl.Series:
        """Which follows a row of the batch may have to do with, so that nothing else looks at all
        of them.
        """
        authors = pl.concat([self.posts["author"], self.relations["author"]]).unique()
        author = pl.col("author").is_in(authors.implode())
        user = pl.col("user").is_in(self.opened["user"].unique().implode())
        return follows.select(author | user).to_series()


class FanOut:
    """Posts go into the feeds of active followers, as columns; follows fill feeds, unfollows empty
    them.
    """

    def __init__(self, limits: Callable[[], Feed]) -> None:
        self._limits = limits

    def start(self, stored: Mapping[str, pl.DataFrame]) -> State:
        outbox = stored["outbox"].select("author", "post_id", "time_ms")
        follows = stored["follows"].select(*store.FOLLOWS.columns)
        wide = stored["wide"].select("author", pl.lit(BEFORE, pl.Int64).alias("wide_at"))
        return State(follows, wide, outbox, outbox.height)

    def fold(self, state: State, batch: Batch) -> tuple[State, Outcome]:
        told = Told.of(batch)
        asked = told.about(state.follows)
        near = state.follows.filter(asked)
        turned = graph.turns(told.relations, near)
        spans = graph.spans(near, turned)
        new_wide = graph.widened(near, turned, state.wide, self._limits().followers_max)
        wide = pl.concat([state.wide, new_wide])
        filled = _filled(self._wanted(told, turned, spans, wide), state.outbox, told.posts)
        entries = pl.concat([self._pushed(told, spans, wide), filled])
        left = graph.standing(spans, told.opened)
        changed = [
            *changes.feeds(entries, turned),
            *changes.outbox(told.posts),
            *changes.follows(left, turned, told.opened),
            *changes.hidden(told.relations),
            *changes.wide(new_wide),
        ]
        follows = state.follows
        if turned.height or told.opened.height:
            follows = pl.concat([follows.filter(~asked), left], rechunk=True)
        state = _after(state, follows, wide, told.posts)
        return state, Outcome(changed, _fates(batch, told, turned))

    def provisional(self, state: State) -> list[Changes]:
        return []

    def _pushed(self, told: Told, spans: pl.DataFrame, wide: pl.DataFrame) -> pl.DataFrame:
        """Posts × those who follow and are active at that moment: `ENTRY`."""
        pairs = _narrow(told.posts, wide).join(spans, on="author")
        pairs = graph.seen(pairs.filter(_INSIDE), told.opened)
        active = pl.col("clock") - pl.col("seen_ms") <= self._limits().active_ms
        return pairs.filter(active).select(ENTRY)

    def _wanted(
        self, told: Told, turned: pl.DataFrame, spans: pl.DataFrame, wide: pl.DataFrame
    ) -> pl.DataFrame:
        """Whose posts have to be filled into whose feed, and when: `author, user, at`."""
        begun = turned.filter("follows").select(*PAIR, "at")
        back = told.opened.join(spans, on="user").filter(_INSIDE)
        away = pl.col("clock") - pl.col("seen_ms") > self._limits().active_ms
        back = graph.seen(back, told.opened).filter(away).select(*PAIR, "at")
        return _narrow(pl.concat([begun, back]), wide)


_BEFORE = pl.lit(BEFORE, pl.Int64)
_INSIDE = (pl.col("since") < pl.col("at")) & (pl.col("at") < pl.col("until"))


def _narrow(rows: pl.DataFrame, wide: pl.DataFrame) -> pl.DataFrame:
    """The rows whose author is not wide at that moment."""
    if wide.is_empty():
        return rows
    found = rows.join(wide, on="author", how="left")
    return found.filter(pl.col("at") < pl.col("wide_at").fill_null(NEVER)).drop("wide_at")


def _filled(wanted: pl.DataFrame, outbox: pl.DataFrame, posts: pl.DataFrame) -> pl.DataFrame:
    """The newest posts of each wanted author before that moment: `ENTRY`."""
    old = outbox.join(wanted, on="author", how="semi").with_columns(_BEFORE.alias("posted"))
    new = posts.select("author", "post_id", "time_ms", pl.col("at").alias("posted"))
    pairs = wanted.join(pl.concat([old, new]), on="author")
    pairs = pairs.filter(pl.col("posted") < pl.col("at"))
    return _newest(pairs, *PAIR, "at").select(ENTRY)


def _newest(posts: pl.DataFrame, *by: str) -> pl.DataFrame:
    """The newest of each group, as many as an outbox has, by the order of the timeline."""
    text = encoded(posts, ("author", "post_id")).alias("text")
    order = posts.with_columns(text).sort("time_ms", "text", descending=True)
    return (
        order.group_by(by, maintain_order=True).head(store.OUTBOX.entries_max).select(posts.columns)
    )


def _after(state: State, follows: pl.DataFrame, wide: pl.DataFrame, posts: pl.DataFrame) -> State:
    """The next state; the outbox is trimmed once it has doubled, so that a post costs no more."""
    outbox, trimmed = state.outbox, state.trimmed
    if posts.height:
        outbox = pl.concat([outbox, posts.select(outbox.columns)])
        if outbox.height > 2 * trimmed + _SLACK:
            outbox = _newest(outbox, "author")
            trimmed = outbox.height
        elif outbox.n_chunks() > _CHUNKS_MAX:
            outbox = outbox.rechunk()
    return State(follows, wide.with_columns(_BEFORE.alias("wide_at")), outbox, trimmed)


def _fates(batch: Batch, told: Told, turned: pl.DataFrame) -> dict[str, int]:
    """To follow who is followed already, or not to who is not, is a duplicate."""
    follows = told.relations.filter(pl.col("change").is_in(["followed", "unfollowed"]))
    repeats = follows.join(turned, on="at", how="anti").height
    known = told.posts.height + told.relations.height + told.opened.height
    known += batch.of(POST_REMOVED.fullname).height
    return {
        Fate.APPLIED: known - repeats,
        Fate.DUPLICATE: repeats,
        Fate.FILTERED: batch.height - known,
    }
