"""Feeds as they are read: ids from Redis, merged over log partitions, then what the posts say.

What is hidden is left out here, when it is read: removed posts, and authors that the reader mutes
or blocks, or that block the reader. So is what was never pushed fetched here: one's own posts,
those of wide authors, and those of everybody one follows when one comes back after long.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

import polars as pl

from schemas.feed.events import EVENTS
from sinks.feed import BLOCKERS, BODIES, FEEDS, FOLLOWS, HIDDEN, HOME, OUTBOX, POSTS, WIDE
from sinks.feed.ranking import Ranked, ranked, standing
from sinks.open import open_cassandra_reader, open_redis_reader
from sinks.readers.redis import Entry
from streams.runtime.kafka import partition_of
from streams.runtime.position import Position, applied
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

LOOK = 50
"""Least entries that are looked at together, so that hidden ones cost no round trip each."""
CANDIDATES = 200
"""Entries that are ranked; the ranked feed ends with them."""
NOTED_MS = 24 * 3_600_000
"""How often a reader is noted as active, by the event time of a log partition."""


@dataclass(frozen=True, slots=True)
class Post:
    """A post as it is shown."""

    post_id: str
    author: str
    text: str
    media_url: str | None
    event_time: datetime


@dataclass(frozen=True)
class RankedPlace:
    """Where a page of the ranked feed ended: the newest candidate, and the last one shown."""

    anchor: Entry
    last: Ranked


@dataclass(frozen=True)
class Page:
    """Posts, and the place of the next page: of the newest-first feed its last entry looked at,
    of the ranked one more. `unnoted` are log partitions that do not know that the reader is active.
    """

    posts: Sequence[Post]
    next: Entry | RankedPlace | None
    unnoted: Sequence[int] = ()


@dataclass(frozen=True)
class _View:
    """What a reader has to do with others: whom they do not see, and whose posts are fetched."""

    user: str
    hidden: frozenset[str]
    fetched: frozenset[str]
    unnoted: tuple[int, ...]


class Ids(Protocol):
    """What the store of ids answers; `sinks.readers.redis.RedisReader`."""

    async def positions(self) -> dict[tuple[str, int], Position]:
        """How far it is folded."""
        ...

    async def bucket(self, table: str, bucket: Any, partition: int | None = None) -> pl.DataFrame:
        """The rows of a bucket."""
        ...

    async def newest(
        self,
        timeline: str,
        feeds: Sequence[dict[str, Any]],
        limit: int,
        before: Entry | None = None,
        partition: int | None = None,
    ) -> list[Entry]:
        """The newest entries of feeds."""
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


class Bodies(Protocol):
    """What the store of posts answers; `sinks.readers.cassandra.CassandraReader`."""

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """How far it is folded."""
        ...

    async def get(
        self, table: str, key: Any, partition: int | None = None
    ) -> dict[str, Any] | None:
        """A row."""
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...


class FeedReader:
    """Feeds and posts. One instance serves any number of concurrent requests."""

    def __init__(self, ids: Ids, bodies: Bodies, active_ms: int) -> None:
        self._ids = ids
        self._bodies = bodies
        self._active_ms = active_ms

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[FeedReader]:
        """The reader of the real stores, which it connects to when they are first needed."""
        ids, bodies = open_redis_reader(HOME, settings), open_cassandra_reader(BODIES, settings)
        try:
            yield cls(ids, bodies, settings.feed.active_ms)
        finally:
            await asyncio.gather(ids.close(), bodies.close())

    async def applied(self) -> dict[tuple[str, int], int]:
        """How far both stores are folded."""
        positions, bodies = await asyncio.gather(
            self._ids.positions(), self._bodies.applied(EVENTS)
        )
        ids = applied(positions, EVENTS)
        return {place: min(ids[place], bodies[place]) for place in ids.keys() & bodies.keys()}

    async def post(self, post_id: str) -> Post | None:
        """A post; None where there is none, or none any more."""
        row = await self._bodies.get(POSTS.name, {"post_id": post_id})
        return None if row is None else Post(**row)

    async def following(self, user: str) -> list[str]:
        """Whom a user follows, by name."""
        rows = await self._ids.bucket(FOLLOWS.name, {"user": user})
        return sorted(rows["author"].to_list())

    async def newest(self, user: str, limit: int, before: Entry | None = None) -> Page:
        """A page of the feed, newest first, behind the entry `before`. What comes in at the top
        moves no page.
        """
        view, found = await self._view(user), list[Post]()
        while True:
            look = max(limit, LOOK)
            entries = await self._entries(view, look, before)
            for entry, post in zip(entries, await self._shown(view, entries), strict=True):
                before = entry
                if post is not None:
                    found.append(post)
                if len(found) == limit:
                    return Page(found, before, view.unnoted)
            if len(entries) < look:
                return Page(found, None, view.unnoted)

    async def ranked(self, user: str, limit: int, place: RankedPlace | None = None) -> Page:
        """A page of the ranked feed. All pages rank what was the newest when the first was read."""
        view, found = await self._view(user), list[Post]()
        anchor = None if place is None else place.anchor
        entries = await self._entries(view, CANDIDATES - (anchor is not None), anchor)
        candidates = ([] if anchor is None else [anchor]) + entries
        order = ranked(candidates)
        if place is not None:
            order = [one for one in order if standing(one) < standing(place.last)]
        shown = await self._shown(view, [entry for _, entry in order])
        for one, post in zip(order, shown, strict=True):
            if post is not None:
                found.append(post)
            if len(found) == limit:
                return Page(found, RankedPlace(candidates[0], one), view.unnoted)
        return Page(found, None, view.unnoted)

    async def _view(self, user: str) -> _View:
        own = partition_of(user, EVENTS.partitions)
        follows, hidden, blockers, wide, positions = await asyncio.gather(
            self._ids.bucket(FOLLOWS.name, {"user": user}),
            self._ids.bucket(HIDDEN.name, {"user": user}),
            self._ids.bucket(BLOCKERS.name, {"author": user}, own),
            self._ids.bucket(WIDE.name, {}),
            self._ids.positions(),
        )
        clock = {at: position.watermark_ms for (_, at), position in positions.items()}
        columns = ("author", "seen_ms", "_partition")
        idle = {a: clock.get(at, ms) - ms for a, ms, at in follows.select(columns).iter_rows()}
        away = {author for author, ms in idle.items() if ms > self._active_ms}
        unnoted = {partition_of(a, EVENTS.partitions) for a, ms in idle.items() if ms > NOTED_MS}
        return _View(
            user,
            frozenset([*hidden["author"].to_list(), *blockers["user"].to_list()]),
            frozenset(away | (idle.keys() & set(wide["author"].to_list())) | {user}),
            tuple(sorted(unnoted)),
        )

    async def _entries(self, view: _View, limit: int, before: Entry | None) -> list[Entry]:
        """The newest entries of a feed and of the authors that have to be fetched."""
        authors: dict[int, list[str]] = {}
        for author in view.fetched - view.hidden:
            authors.setdefault(partition_of(author, EVENTS.partitions), []).append(author)
        asked = [self._ids.newest(FEEDS.name, [{"user": view.user}], limit, before)]
        for at, owners in authors.items():
            boxes = [{"owner": owner} for owner in sorted(owners)]
            asked.append(self._ids.newest(OUTBOX.name, boxes, limit, before, at))
        found = {entry for entries in await asyncio.gather(*asked) for entry in entries}
        return sorted(found, key=Entry.order, reverse=True)[:limit]

    async def _shown(self, view: _View, entries: Iterable[Entry]) -> list[Post | None]:
        """The post of each entry; None for one that is removed or hidden."""

        async def shown(entry: Entry) -> Post | None:
            if entry.origin in view.hidden:
                return None
            at = partition_of(entry.origin, EVENTS.partitions)
            row = await self._bodies.get(POSTS.name, {"post_id": entry.entry}, at)
            return None if row is None else Post(**row)

        return list(await asyncio.gather(*map(shown, entries)))
