"""What is stored of pastes, whatever the borders of batches are, against the events themselves."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import pytest

from schemas.pastes.events import DeletePaste, NoteKey, PasteChanged
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.pastes import DAY_MS
from streams.runtime.decider.testing import START_MS
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.pastes.desk import TABLE, Desk, create, sha_of, upload


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


def folded(rows: list[Any]) -> Harness:
    harness = Harness(TABLE, memory(TABLE.model))
    harness.send(*rows)
    harness.run()
    return harness


@cache
def course(seed: int) -> list[Any]:
    """The events of one partition in which contents come, go, and change their place."""
    chance, desk = random.Random(seed), Desk()
    for n in range(80):
        text, visibility = f"text {chance.randrange(4)}", chance.choice(["public", "private"])
        ttl_ms = chance.choice([None, 3_000])
        inline = ttl_ms is None and chance.random() < 0.6
        stored = "" if inline else upload(sha_of(text), desk.partitions[0].now_ms)
        desk.send(
            create(
                text, n, inline=inline, ttl_ms=ttl_ms, object=stored, visibility=visibility,
                owner=chance.choice(["alice", "bob"]), burn=not inline and chance.random() < 0.2,
            )
        )  # fmt: skip
        desk.send(NoteKey(f"k-{n}"))
        if chance.random() < 0.7:
            one = chance.choice(desk.changes())
            desk.send(DeletePaste(one.id, one.owner))
        desk.advance(chance.randrange(400))
    return max((list(one.events) for one in desk.partitions), key=len)


@pytest.mark.parametrize("seed", range(3))
def test_replay_is_deterministic(seed: int) -> None:
    rows = [row for row in course(seed) if hasattr(row, "recorded_at")]
    assert_replay_deterministic(TABLE, rows, seed, memory)


@pytest.mark.parametrize("seed", range(3))
def test_the_tables_are_what_the_events_say(seed: int) -> None:
    rows = [row for row in course(seed) if isinstance(row, PasteChanged)]
    last = {row.id: row for row in rows}
    live = {row.id for row in last.values() if not row.ended}
    stored = folded(rows)
    assert dict(stored.rows("pastes").select("id", "change").iter_rows()) == {
        row.id: row.change for row in last.values()
    }
    assert set(stored.rows("owned")["id"]) == live
    listed = {i for i in live if last[i].visibility == "public" and not last[i].burn}
    assert set(stored.rows("listed")["id"]) == listed
    needed = {last[i].sha256: last[i].object for i in live}
    texts = {sha_of(f"text {n}"): f"text {n}" for n in range(4)}
    contents = dict(stored.rows("contents").select("sha256", "content").iter_rows())
    assert contents == {sha: texts[sha] for sha, where in needed.items() if not where}
    objects = dict(stored.rows("objects").select("sha256", "object").iter_rows())
    assert objects == {sha: where for sha, where in needed.items() if where}
    counts = dict(stored.rows("objects").select("sha256", "references").iter_rows())
    assert counts == {sha: sum(last[i].sha256 == sha for i in live) for sha in objects}


def test_what_is_no_paste_is_left_out() -> None:
    desk = Desk()
    desk.send(NoteKey("k"))
    desk.send(create())
    stored = folded(list(desk.events()))
    assert stored.counts == {"applied": 1, "filtered": 1}
    (row,) = stored.rows("owned").to_dicts()
    assert row["created_ms"] == START_MS
    assert START_MS // DAY_MS * DAY_MS != START_MS
