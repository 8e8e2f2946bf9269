"""Reads of pastes. An expired paste is in no answer, whether or not its end has been decided."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from schemas.pastes.events import EVENTS
from sinks.open import open_cassandra_reader
from sinks.pastes import CONTENTS, DAY_MS, LISTED, OBJECTS, OWNED, PASTES, TABLE
from sinks.readers.rows import Rows
from streams.runtime.kafka import partition_of
from streams.runtime.settings import Settings
from streams.runtime.sink import ReadModel

Applied = dict[tuple[str, int], int]
At = tuple[int, str]
"""When a paste was made, and its id: a place in a list."""


@dataclass(frozen=True, slots=True)
class Paste:
    """A paste as it stands; `changed_ms` and `offset` are of its last event."""

    id: str
    change: str
    ended: str
    owner: str
    visibility: str
    sha256: str
    created_ms: int
    burn: bool
    lock: str
    object: str
    dropped: str
    changed_ms: int
    offset: int
    language: str
    size: int
    expires_ms: int | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A paste in a list."""

    id: str
    created_ms: int
    visibility: str
    burn: bool
    language: str
    size: int
    expires_ms: int | None


@dataclass(frozen=True)
class Page:
    """A part of a list, the newest first; `next` is where the next one begins."""

    pastes: Sequence[Listed]
    next: At | None


class PastesReader:
    """What is read of pastes. One instance serves any number of concurrent requests."""

    def __init__(
        self, rows: Rows, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        self._rows = rows
        self._now_ms = now_ms

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: Settings, model: ReadModel = TABLE
    ) -> AsyncIterator[PastesReader]:
        """The reader of the real store, which it connects to when it is first needed."""
        rows = open_cassandra_reader(model, settings)
        try:
            yield cls(rows)
        finally:
            await rows.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return await self._rows.applied(EVENTS)

    async def paste(self, name: str) -> Paste | None:
        """A paste, also one that has ended; None where there never was one."""
        row = await self._of(PASTES.name, "id", name)
        return None if row is None else Paste(**row)

    async def content(self, sha256: str) -> str | None:
        """A content that came in an event and that a paste needs; None where there is none."""
        row = await self._of(CONTENTS.name, "sha256", sha256)
        return None if row is None else str(row["content"])

    async def needed(self, names: dict[str, str]) -> set[str]:
        """Of these objects (name → hash of its content), those that pastes need."""
        rows = await asyncio.gather(
            *(self._of(OBJECTS.name, "sha256", sha256) for sha256 in names.values())
        )
        return names.keys() & {row["object"] for row in rows if row is not None}

    async def owned(self, owner: str, limit: int, after: At | None = None) -> Page:
        """The pastes of an owner that have not ended."""
        return await self._list(OWNED.name, {"owner": owner}, limit, after)

    async def listed(self, day_ms: int, limit: int, after: At | None = None) -> Page:
        """The public pastes of a day (UTC) that have not ended."""
        return await self._list(LISTED.name, {"day_ms": day_ms // DAY_MS * DAY_MS}, limit, after)

    async def _list(self, table: str, prefix: dict[str, Any], limit: int, after: At | None) -> Page:
        found = await self._rows.page(table, prefix, limit, after=after, descending=True)
        more = found.height == limit
        place = (int(found["created_ms"][-1]), str(found["id"][-1])) if more else None
        now_ms = self._now_ms()
        rows = found.filter(pl.col("expires_ms").is_null() | (pl.col("expires_ms") > now_ms))
        shown = rows.select(Listed.__slots__).iter_rows(named=True)
        return Page([Listed(**row) for row in shown], place)

    async def _of(self, table: str, column: str, key: str) -> dict[str, Any] | None:
        return await self._rows.get(table, {column: key}, partition_of(key, EVENTS.partitions))


PAGE_MAX: Final = 200
