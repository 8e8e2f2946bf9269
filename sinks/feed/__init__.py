"""Where feeds are stored, by the partition of the *author*: all that a post leads to is written
where the post is, in one order with the follows of its author. A feed is read from all partitions
in one round trip and merged.

`feed-home` (Redis) has ids only; `feed-posts` (Cassandra) has what posts say.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table, Timeline

FEED_MAX = 800
"""Entries that a feed keeps in each log partition."""
OUTBOX_MAX = 100
"""Newest posts that are kept of each author, to fill feeds from."""

FEEDS = Timeline("feeds", {"user": pl.String}, "author", "post_id", FEED_MAX)
"""What was put into feeds when it was published, or when a follow or a return asked for it."""
OUTBOX = Timeline("outbox", {"owner": pl.String}, "author", "post_id", OUTBOX_MAX)
"""The newest posts of each author, who is `owner`, too; removed ones stay until they fall off."""
FOLLOWS = Table(
    name="follows",
    key={"user": pl.String, "author": pl.String},
    values={"seen_ms": pl.Int64},
    bucket=("user",),
)
"""Who follows whom. `seen_ms`: event time of this partition when the user was last there."""
HIDDEN = Table(
    name="hidden",
    key={"user": pl.String, "author": pl.String, "how": pl.String},
    values={},
    bucket=("user",),
    append=True,
)
"""Whom a user does not want to see; `how`: muted or blocked."""
BLOCKERS = Table(
    name="blockers",
    key={"author": pl.String, "user": pl.String},
    values={},
    bucket=("author",),
    append=True,
)
"""By whom an author is blocked: the same blocks, looked up from the other side."""
WIDE = Table(name="wide", key={"author": pl.String}, values={}, append=True)
"""Authors with so many followers that their posts are fetched when feeds are read."""
POSTS = Table(
    name="posts",
    key={"post_id": pl.String},
    values={
        "author": pl.String,
        "text": pl.String,
        "media_url": pl.String,
        "event_time": pl.Datetime("ms", "UTC"),
    },
    bucket=("post_id",),
)

HOME = ReadModel("feed-home", (FEEDS, OUTBOX, FOLLOWS, HIDDEN, BLOCKERS, WIDE))
BODIES = ReadModel("feed-posts", (POSTS,))
