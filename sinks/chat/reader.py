"""Reads of conversations. One instance serves any number of concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas.chat.events import EVENTS
from sinks.chat import (
    CONVERSATIONS,
    ENTRIES,
    HEADS,
    HISTORY,
    MARKS,
    MEMBERSHIPS,
    PAGE,
    REVISIONS,
)
from sinks.open import open_cassandra_reader
from sinks.readers.rows import Rows
from streams.runtime.kafka import partition_of
from streams.runtime.position import Position, applied
from streams.runtime.settings import Settings


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry, as it was decided."""

    seq: int
    change: str
    by: str
    of: int
    client_msg_id: str
    body: str
    reply_to: int
    members: Sequence[str]
    recorded_ms: int


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it reads now. `edited_seq` is the entry that edited it last, 0 without one."""

    seq: int
    by: str
    client_msg_id: str
    body: str
    reply_to: int
    edited_seq: int
    deleted: bool
    recorded_ms: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation as it stands."""

    conversation_id: str
    kind: str
    title: str
    owner: str
    members: Sequence[str]
    last_seq: int
    recorded_ms: int


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a member has received and read."""

    user_id: str
    delivered: int
    read: int


class ChatReader:
    """Conversations, and their entries from any number on."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[ChatReader]:
        """The reader of the real store; connects at its first read."""
        rows = open_cassandra_reader(HISTORY, settings)
        try:
            yield cls(rows)
        finally:
            await rows.close()

    async def applied(self) -> dict[tuple[str, int], int]:
        """How far it is folded; of the commands, too."""
        return applied(await self._rows.positions(), EVENTS)

    async def positions(self) -> dict[int, Position]:
        """The position of each partition of the events."""
        return {at: one for (_, at), one in (await self._rows.positions()).items()}

    async def conversation(self, conversation_id: str) -> Conversation | None:
        """A conversation; None where there is none."""
        key, at = {"conversation_id": conversation_id}, _partition(conversation_id)
        found, head = await asyncio.gather(
            self._rows.get(CONVERSATIONS.name, key, at), self._rows.get(HEADS.name, key, at)
        )
        if found is None or head is None:
            return None
        return Conversation(
            conversation_id=conversation_id,
            kind=found["kind"],
            title=found["title"],
            owner=found["owner"],
            members=found["members"],
            last_seq=head["last_seq"],
            recorded_ms=head["recorded_ms"],
        )

    async def of_user(self, user: str) -> list[Conversation]:
        """The conversations that somebody is in, the one with the newest entry first."""
        rows = await self._rows.bucket(MEMBERSHIPS.name, {"user_id": user})
        names = rows["conversation_id"].to_list()
        found = await asyncio.gather(*(self.conversation(name) for name in names))
        own = [one for one in found if one is not None and user in one.members]
        return sorted(own, key=lambda one: (-one.recorded_ms, one.conversation_id))

    async def members(self, conversation_id: str, seq: int) -> Sequence[str] | None:
        """Who the entry `seq` says is in the conversation; None before it is folded."""
        key = {"conversation_id": conversation_id, "page": seq // PAGE, "seq": seq}
        found = await self._rows.get(ENTRIES.name, key, _partition(conversation_id))
        return None if found is None else found["members"]

    async def marks(self, conversation_id: str) -> list[Mark]:
        """How far everybody is who has said so, by name."""
        rows = await self._rows.bucket(
            MARKS.name, {"conversation_id": conversation_id}, _partition(conversation_id)
        )
        shown = rows.select("user_id", "delivered", "read").sort("user_id")
        return [Mark(*row) for row in shown.iter_rows()]

    async def entries(self, conversation_id: str, after: int, limit: int) -> list[Entry]:
        """Up to `limit` entries from the one behind `after` on, ascending and without a hole.

        Fewer: that is all. Rows of a write are not seen all at once, so what lies behind a hole is
        not taken to be there yet; everything up to `applied` is.
        """
        found: list[Entry] = []
        page = (after + 1) // PAGE
        while len(found) < limit:
            rows = await self._page(conversation_id, page, limit - len(found), after=after)
            found += [_entry(row) for row in rows.iter_rows(named=True)]
            if not found or found[-1].seq != (page + 1) * PAGE - 1:
                break  # the last page there is; a full one has another behind it
            page += 1
        return [one for n, one in enumerate(found, after + 1) if one.seq == n]

    async def messages(self, conversation_id: str, before: int, limit: int) -> list[Message]:
        """The last `limit` messages with numbers below `before`, descending, as they read now."""
        found: list[Message] = []
        while before > 1 and len(found) < limit:
            page = (before - 1) // PAGE
            rows = await self._page(conversation_id, page, limit, after=before, descending=True)
            revised = await self._revisions(conversation_id, page)
            sent = rows.filter(pl.col("change") == "sent").iter_rows(named=True)
            found += [_message(row, revised.get(row["seq"])) for row in sent]
            before = rows["seq"].min() if rows.height == limit else page * PAGE  # type: ignore[assignment]
        return found[:limit]

    async def _page(
        self, conversation_id: str, page: int, limit: int, *, after: int, descending: bool = False
    ) -> pl.DataFrame:
        return await self._rows.page(
            ENTRIES.name,
            {"conversation_id": conversation_id, "page": page},
            limit,
            after=[after],
            descending=descending,
            partition=_partition(conversation_id),
        )

    async def _revisions(self, conversation_id: str, page: int) -> dict[int, dict[str, Any]]:
        rows = await self._rows.bucket(
            REVISIONS.name,
            {"conversation_id": conversation_id, "page": page},
            _partition(conversation_id),
        )
        return {row["of"]: row for row in rows.iter_rows(named=True)}


def _partition(conversation_id: str) -> int:
    return partition_of(conversation_id, EVENTS.partitions)


def _entry(row: Mapping[str, Any]) -> Entry:
    return Entry(**{name: row[name] for name in Entry.__dataclass_fields__})


def _message(row: Mapping[str, Any], revised: Mapping[str, Any] | None) -> Message:
    deleted = revised is not None and revised["deleted"]
    return Message(
        seq=row["seq"],
        by=row["by"],
        client_msg_id=row["client_msg_id"],
        body=row["body"] if revised is None else revised["body"],
        reply_to=row["reply_to"],
        edited_seq=0 if revised is None else revised["seq"],
        deleted=deleted,
        recorded_ms=row["recorded_ms"],
    )
