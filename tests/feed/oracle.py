"""Feeds in plain Python, one event after the other: what the columns must come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas.feed.events import FeedOpened, PostPublished, PostRemoved, RelationChanged
from sinks.feed import FEED_MAX, OUTBOX_MAX
from streams.runtime.settings import Feed

Post = tuple[str, str, int]
"""Author, id, time."""


def place(post: Post) -> tuple[int, bytes]:
    """Where it stands in a feed: by time, then by the text of author and id."""
    return post[2], orjson.dumps(post[:2])[1:-1]


@dataclass
class Oracle:
    """One log partition. `feeds` are what is stored, `home` is what a user gets to see."""

    limits: Feed
    feed_max: int = FEED_MAX
    outbox_max: int = OUTBOX_MAX
    clock: int = -(2**62)
    feeds: dict[str, set[Post]] = field(default_factory=dict)
    outbox: dict[str, set[Post]] = field(default_factory=dict)
    follows: dict[tuple[str, str], int] = field(default_factory=dict)
    """User and author → when the user was last there."""
    hidden: set[tuple[str, str, str]] = field(default_factory=set)
    wide: set[str] = field(default_factory=set)
    bodies: dict[str, str] = field(default_factory=dict)

    def fold(self, events: Iterable[Any]) -> Oracle:
        """Fold events in the order of the log."""
        for event in events:
            self.clock = max(self.clock, event.event_time)
            match event:
                case PostPublished():
                    self._publish(event)
                case PostRemoved():
                    self.bodies.pop(event.post_id, None)
                case RelationChanged():
                    self._relate(event)
                case FeedOpened():
                    self._open(event.user)
        return self

    def _publish(self, event: PostPublished) -> None:
        post = (event.author, event.post_id, event.event_time)
        self.bodies[event.post_id] = event.text
        keep(self.outbox, event.author, [post], self.outbox_max)
        if event.author not in self.wide:
            for (user, author), seen in self.follows.items():
                if author == event.author and self.clock - seen <= self.limits.active_ms:
                    keep(self.feeds, user, [post], self.feed_max)

    def _relate(self, event: RelationChanged) -> None:
        user, author = pair = event.user, event.author
        match event.change:
            case "followed" if pair not in self.follows:
                self.follows[pair] = self.clock
                if (
                    sum(followed == author for _, followed in self.follows)
                    > self.limits.followers_max
                ):
                    self.wide.add(author)
                self._fill(user, author)
            case "unfollowed" | "blocked" if pair in self.follows:
                del self.follows[pair]
                feed = self.feeds.get(user, set())
                feed -= {post for post in feed if post[0] == author}
        match event.change:
            case "muted" | "blocked":
                self.hidden.add((user, author, event.change))
            case "unmuted" | "unblocked":
                self.hidden.discard((user, author, event.change.removeprefix("un")))

    def _open(self, user: str) -> None:
        for (follower, author), seen in self.follows.items():
            if follower == user:
                self.follows[follower, author] = self.clock
                if self.clock - seen > self.limits.active_ms:
                    self._fill(user, author)

    def _fill(self, user: str, author: str) -> None:
        if author not in self.wide:
            keep(self.feeds, user, self.outbox.get(author, ()), self.feed_max)

    def stored(self, table: str) -> set[tuple[Any, ...]]:
        """The rows that a table must have."""
        match table:
            case "feeds":
                return {(user, *post) for user, feed in self.feeds.items() for post in feed}
            case "outbox":
                return {(author, *post) for author, box in self.outbox.items() for post in box}
            case "follows":
                return {(*pair, seen) for pair, seen in self.follows.items()}
            case "hidden":
                return self.hidden
            case "blockers":
                return {(author, user) for user, author, how in self.hidden if how == "blocked"}
            case _:
                return {(author,) for author in self.wide}


def keep(feeds: dict[str, set[Post]], name: str, posts: Iterable[Post], most: int) -> None:
    """Put posts into a feed and cut it to its newest."""
    feed = feeds.get(name, set()) | set(posts)
    feeds[name] = set(sorted(feed, key=place)[-most:])


def home(partitions: Iterable[Oracle], user: str) -> list[str]:
    """The ids that a user gets to see, newest first, over all log partitions."""
    logs = list(partitions)
    shown: set[Post] = set()
    told = {row for log in logs for row in log.hidden}
    hidden = {author for who, author, _ in told if who == user}
    hidden |= {who for who, author, how in told if (author, how) == (user, "blocked")}
    for log in logs:
        mine = {author: seen for (who, author), seen in log.follows.items() if who == user}
        away = {author for author, seen in mine.items() if log.clock - seen > log.limits.active_ms}
        fetched = away | (mine.keys() & log.wide) | {user}
        shown |= log.feeds.get(user, set())
        shown |= {post for author in fetched for post in log.outbox.get(author, ())}
    newest = sorted(shown, key=place, reverse=True)
    bodies = {post for log in logs for post in log.bodies}
    return [post for author, post, _ in newest if post in bodies and author not in hidden]
