"""What is suggested: from the snapshot, what is searched for now, and what the user searched for.

All but the last is in memory, so an answer waits for nothing. Two tasks keep it new: one looks for
another snapshot, one for the searches of the last minutes. Where a store is away, what was read
last goes on answering. A snapshot is swapped by one assignment; a request sees the old one or the
new one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import structlog

from schemas.typeahead.folding import folded, folded_prefix
from sinks.typeahead import MINUTE_MS, OWN, OWN_KEEP_MS, WEEK_MS
from sinks.typeahead import MINUTES as MINUTES_RANKED
from sinks.typeahead.index import LISTED, Index
from sinks.typeahead.snapshots import Pointer, Snapshots
from sinks.typeahead.trend import MINUTES, Trend
from streams.runtime.ending import end
from streams.runtime.metrics.edge import Suggestions
from streams.runtime.sink import SinkError

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader

SNAPSHOT_EVERY_S = 2.0
TREND_EVERY_S = 1.0
TREND_TEXTS = 200
"""Of each minute, so many texts are looked at, the most popular first."""
OWN_MAX = 3
START_S = 5.0
"""How long the first looks may take before the API is served without them."""

Source = Literal["own", "popular", "trending", "similar"]
Applied = Mapping[tuple[str, int], int]

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion, and where it is from."""

    text: str
    source: Source


class NotReady(Exception):
    """What must not be shown is not known yet, so nothing is."""


class Blocks(Protocol):
    """The blocklist; `connectors.typeahead.blocklist.Blocklist`."""

    @property
    def complete(self) -> bool: ...
    def blocks(self, term: str) -> bool: ...
    async def applied(self) -> Applied: ...


class Suggester:
    """Suggestions for what is typed. One instance serves any number of concurrent requests."""

    def __init__(
        self,
        recent: RedisReader,
        snapshots: Snapshots,
        blocked: Blocks,
        folder: Path,
        metrics: Suggestions,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`folder` is where snapshots are kept as files, shared by all processes of a machine."""
        self._recent = recent
        self._snapshots = snapshots
        self._blocked = blocked
        self._folder = folder
        self._metrics = metrics
        self._now_ms = now_ms
        self._index: Index | None = None
        self._trend = Trend()
        self._positions: Applied = {}
        self.snapshot: Pointer | None = None
        """The one that answers."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Suggester]:
        """The suggester while it is kept new. The first looks are waited for, a moment."""
        looks = ((self.look_for_snapshot, SNAPSHOT_EVERY_S), (self.look_for_trend, TREND_EVERY_S))
        firsts = [asyncio.Event() for _ in looks]
        tasks = [
            asyncio.create_task(_again_and_again(look, every_s, first))
            for (look, every_s), first in zip(looks, firsts, strict=True)
        ]
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(START_S):
                    await asyncio.gather(*(first.wait() for first in firsts))
            yield self
        finally:
            await end(*tasks)
            await self._recent.close()

    async def look_for_snapshot(self) -> None:
        """Swap in the snapshot that the pointer names, unless it is the one that answers. Whatever
        is raised, the one that answered goes on.
        """
        found = await asyncio.to_thread(self._snapshots.live)
        if found is None or (self.snapshot is not None and found[0].id == self.snapshot.id):
            return
        pointer, _ = found
        if self.snapshot is None or pointer.digest != self.snapshot.digest:
            self._index = await asyncio.to_thread(self._snapshots.open, pointer, self._folder)
        self.snapshot = pointer
        self._metrics.built.labels("typeahead").set(pointer.built_ms / 1_000)
        log.info("a snapshot answers", snapshot=pointer.id, terms=pointer.terms)

    async def look_for_trend(self) -> None:
        """Read the searches of the last minutes."""
        positions = await self._recent.applied()
        minute_ms = self._now_ms() // MINUTE_MS * MINUTE_MS
        boards = [{"minute_ms": minute_ms - n * MINUTE_MS} for n in range(MINUTES + 1)]
        found = await asyncio.gather(
            *(self._recent.top(MINUTES_RANKED.name, board, TREND_TEXTS) for board in boards)
        )
        searches = [(one.member, one.score) for board in found for one in board]
        self._trend = await asyncio.to_thread(Trend, searches)
        self._positions = positions

    async def applied(self) -> Applied:
        """How far searches and blocklist are read by this process."""
        return {**self._positions, **await self._blocked.applied()}

    async def suggest(self, typed: str, limit: int, user_id: str | None = None) -> list[Suggestion]:
        """Up to `limit` suggestions for what is typed, best first: of the user's own searches the
        newest, if they can be read, then by popularity; where that is not enough, what is one edit
        away. Raises `NotReady` before the blocklist is read.
        """
        if not self._blocked.complete:
            raise NotReady("the blocklist is not read yet")
        prefix = folded_prefix(typed)
        found: dict[str, Suggestion] = {}
        if user_id is not None:
            with suppress(SinkError):
                found = await self._own(user_id, prefix, min(limit, OWN_MAX))
        for term, suggestion in self._public(prefix, limit + len(found)):
            if len(found) >= limit:
                break
            found.setdefault(term, suggestion)
        return list(found.values())

    async def _own(self, user_id: str, prefix: str, limit: int) -> dict[str, Suggestion]:
        week_ms = self._now_ms() // WEEK_MS * WEEK_MS
        weeks = range(week_ms - OWN_KEEP_MS, week_ms + 1, WEEK_MS)
        buckets = [{"user_id": user_id, "week_ms": week} for week in weeks]
        rows = await self._recent.buckets(OWN.name, buckets)
        found: dict[str, Suggestion] = {}
        for text in rows.sort("searched_ms", "text", descending=[True, False])["text"]:
            term = folded(text)
            if len(found) < limit and term.startswith(prefix) and not self._blocked.blocks(term):
                found.setdefault(term, Suggestion(text, "own"))
        return found

    def _public(self, prefix: str, limit: int) -> Iterator[tuple[str, Suggestion]]:
        """What anybody is suggested, best first, by term."""
        index, trend = self._index, self._trend
        ranked = self._ranked(index, trend, prefix, limit)
        yield from ranked.items()
        if index is None or len(ranked) >= limit:
            return
        for row in index.near(prefix, LISTED):
            term = index.term(row)
            if term not in ranked and not self._blocked.blocks(term):
                yield term, Suggestion(index.text(row), "similar")

    def _ranked(
        self, index: Index | None, trend: Trend, prefix: str, limit: int
    ) -> dict[str, Suggestion]:
        scored: dict[str, tuple[int, Suggestion]] = {}
        for rising in trend.starting(prefix):
            if not self._blocked.blocks(rising.term):
                row = None if index is None else index.row(rising.term)
                score = rising.score + (0 if index is None or row is None else index.score(row))
                scored[rising.term] = score, Suggestion(rising.text, "trending")
        for row, term in self._popular(index, prefix, limit):
            if term not in scored:
                assert index is not None
                scored[term] = index.score(row), Suggestion(index.text(row), "popular")
        best = sorted(scored.items(), key=lambda one: (-one[1][0], one[0]))
        return {term: suggestion for term, (_, suggestion) in best[:limit]}

    def _popular(self, index: Index | None, prefix: str, limit: int) -> list[tuple[int, str]]:
        """At least `limit` rows of the snapshot that may be shown, if there are as many. Builds
        leave out what is blocked, so only what was blocked since makes it look for more.
        """
        if index is None:
            return []
        wanted = LISTED
        while True:
            rows = index.best(prefix, wanted)
            terms = ((row, index.term(row)) for row in rows)
            found = [one for one in terms if not self._blocked.blocks(one[1])]
            if len(found) >= limit or len(rows) < wanted:
                return found
            wanted *= 8


async def _again_and_again(
    look: Callable[[], Awaitable[None]], every_s: float, first: asyncio.Event
) -> None:
    while True:
        try:
            await look()
        except Exception as error:  # whatever it is, what was read last goes on answering
            log.warning("what is suggested is not renewed", look=look.__name__, error=str(error))
        first.set()
        await asyncio.sleep(every_s)
