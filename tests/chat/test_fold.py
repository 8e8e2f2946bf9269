"""The history as it is stored and read: the same at any cut, and what the entries say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from schemas.chat.events import ReceiptMoved
from sinks.chat import PAGE
from sinks.chat.reader import ChatReader
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.chat.desk import HISTORY, ROOM, Desk, evening


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


def folded(desk: Desk) -> Harness:
    harness = Harness(HISTORY, memory(HISTORY.model))
    harness.send(*desk.log.events)
    harness.run()
    return harness


class Rows:
    """The stored rows, as the real reader gives them."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness

    async def get(self, table: str, key: Mapping[str, Any], partition: Any = None) -> Any:
        found = self._where(table, key)
        return found.row(0, named=True) if found.height else None

    async def bucket(self, table: str, bucket: Mapping[str, Any], partition: Any = None) -> Any:
        return self._where(table, bucket)

    async def page(
        self,
        table: str,
        prefix: Mapping[str, Any],
        limit: int,
        *,
        after: Sequence[Any] | None = None,
        descending: bool = False,
        partition: Any = None,
    ) -> pl.DataFrame:
        found = self._where(table, prefix)
        (seq,) = after or (-1,)
        beyond = pl.col("seq") < seq if descending else pl.col("seq") > seq
        return found.filter(beyond).sort("seq", descending=descending).head(limit)

    async def positions(self) -> Any:
        return {}

    async def close(self) -> None:
        """Nothing is open."""

    def _where(self, table: str, equal: Mapping[str, Any]) -> pl.DataFrame:
        return self._harness.rows(table).filter(*(pl.col(c) == v for c, v in equal.items()))


@pytest.mark.parametrize("seed", range(3))
def test_replay_is_deterministic(seed: int) -> None:
    disturbed = assert_replay_deterministic(HISTORY, evening(seed).log.events, seed, memory)
    assert disturbed.crashes


@pytest.mark.parametrize("seed", range(3))
def test_the_history_is_what_the_log_says(seed: int) -> None:
    desk = evening(seed)
    harness = folded(desk)
    marks = {
        (r.conversation_id, r.user_id): r for r in desk.log.events if isinstance(r, ReceiptMoved)
    }
    in_it: dict[str, list[str]] = {}
    texts: dict[tuple[str, int], str] = {}
    for entry in desk.entries:
        room = entry.conversation_id
        if entry.members_seq == entry.seq:
            in_it[room] = entry.members
        if entry.change in {"sent", "edited", "deleted"}:
            texts[room, entry.of or entry.seq] = entry.body
    reader = ChatReader(Rows(harness))

    async def look() -> None:
        for room, members in in_it.items():
            found = await reader.conversation(room)
            assert found is not None
            assert found.members == members
            told = await reader.entries(room, 0, 1_000)
            assert [e.seq for e in told] == list(range(1, found.last_seq + 1))
            read = await reader.messages(room, found.last_seq + 1, 1_000)
            assert {(room, m.seq): m.body for m in read} == {
                key: text for key, text in texts.items() if key[0] == room
            }
            assert [m.seq for m in read] == sorted((m.seq for m in read), reverse=True)
            own = {(m.user_id): (m.delivered, m.read) for m in await reader.marks(room)}
            assert own == {
                user: (r.delivered, r.read) for (at, user), r in marks.items() if at == room
            }
        for user in (f"p{n}" for n in range(6)):
            own_rooms = {one.conversation_id for one in await reader.of_user(user)}
            assert own_rooms == {room for room, members in in_it.items() if user in members}

    asyncio.run(look())


def test_pages_of_history_meet_without_a_gap() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    for n in range(PAGE + 40):
        desk.say("bob", f"word {n}")
    reader = ChatReader(Rows(folded(desk)))

    async def look() -> None:
        told = await reader.entries(ROOM, 0, 2 * PAGE)
        assert [e.seq for e in told] == list(range(1, PAGE + 42))
        assert [e.seq for e in await reader.entries(ROOM, PAGE - 3, 5)] == [
            PAGE - 2, PAGE - 1, PAGE, PAGE + 1, PAGE + 2,
        ]  # fmt: skip
        assert await reader.entries(ROOM, PAGE + 41, 5) == []
        assert len(await reader.entries(ROOM, PAGE - 1, 1)) == 1
        found, before = [], PAGE + 42
        while page := await reader.messages(ROOM, before, 100):
            found += [m.seq for m in page]
            before = page[-1].seq
        assert found == list(range(PAGE + 41, 1, -1))

    asyncio.run(look())


def test_a_hole_ends_what_is_told() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    for n in range(5):
        desk.say("bob", f"word {n}")
    harness = Harness(HISTORY, memory(HISTORY.model))
    harness.send(*(row for row in desk.entries if row.seq != 4))
    harness.run()
    told = asyncio.run(ChatReader(Rows(harness)).entries(ROOM, 0, 100))
    assert [e.seq for e in told] == [1, 2, 3]
