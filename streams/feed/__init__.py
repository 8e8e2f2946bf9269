"""News feed: posts go to the feeds of active followers as columns; wide authors are fetched.

All that concerns one author (posts, follows, blocks) is decided and folded in one log partition, so
feeds depend on the order of that log and on nothing else: they can be lost and folded again.
"""

from __future__ import annotations

from functools import cache

from schemas.feed.events import (
    COMMANDS,
    EVENTS,
    FEED_OPENED,
    POST_PUBLISHED,
    POST_REMOVED,
    RELATION_CHANGED,
)
from sinks import feed as store
from streams.feed.bodies import KeepPosts
from streams.feed.fold import FanOut
from streams.feed.rules import FeedRules
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.settings import Feed, Settings

BATCH_ROWS_MAX = 256
"""A post may be thousands of insertions, and the store answers nobody while it applies a batch."""


@cache
def _limits() -> Feed:
    return Settings.read().feed


SYSTEM = System(
    name="feed",
    title="News feed",
    deciders=(Decider("feed", COMMANDS, EVENTS, FeedRules()),),
    projections=(
        Projection(
            "feed-home",
            EVENTS,
            FanOut(_limits),
            store.HOME,
            store="redis",
            restores=("follows", "wide", "outbox"),
            columns={
                POST_PUBLISHED.fullname: ("author", "post_id", "event_time"),
                POST_REMOVED.fullname: ("event_time",),
                RELATION_CHANGED.fullname: ("author", "user", "change", "event_time"),
                FEED_OPENED.fullname: ("user", "event_time"),
            },
            rows_max=BATCH_ROWS_MAX,
        ),
        Projection("feed-posts", EVENTS, KeepPosts(), store.BODIES, store="cassandra"),
    ),
)
