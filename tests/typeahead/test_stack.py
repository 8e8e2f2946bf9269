"""Typeahead through the whole product: searched for, suggested, blocked, swapped, rebuilt."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from infra import typeahead
from infra.cli import rebuild
from infra.typeahead import Build, Options
from schemas.apply import apply
from sinks.open import open_s3_reader, open_sink
from sinks.typeahead import COUNTS
from streams.runtime.settings import Settings
from streams.typeahead import SYSTEM
from tests import stack

pytestmark = pytest.mark.stack

AGENTS = ("typeahead-counts", "typeahead-recent")
MINUTE_MS = 60_000
PATIENCE_S = 60.0


class People:
    """Somebody who searches, and what is suggested to everybody."""

    def __init__(self, api: stack.Api) -> None:
        self.api = api
        self.word = f"w{random.randrange(16**10):010x}"
        """Begins all terms of this test, on a stack that others search, too."""

    async def search(self, text: str, people: int, ago_ms: int = 0, **more: Any) -> None:
        """So many people search for the word with `text` behind it."""
        event = {
            "type": "QuerySearched",
            "query": f"{self.word} {text}",
            "finished": True,
            "hits": 1,
            "event_time": time.time_ns() // 1_000_000 - ago_ms,
        }
        who = [{**event, "user_id": uuid.uuid4().hex, **more} for _ in range(people)]
        await self.api.write("/v1/typeahead/events:batch", {"events": who})

    async def suggested(self, typed: str = "", **params: Any) -> list[tuple[str, str]]:
        """What is suggested, without the word, once all that was written is in it."""
        answer = await self.api.read("/v1/suggest", q=f"{self.word} {typed}", **params)
        assert answer.status_code == 200, answer.text
        found = answer.json()["suggestions"]
        return [(one["text"].removeprefix(f"{self.word} "), one["source"]) for one in found]

    async def block(self, text: str) -> None:
        path = f"/v1/typeahead/blocklist/{self.word} {text}"
        blocked = await self.api.client.put(path, json={"reason": "a test"})
        assert blocked.status_code == 202, blocked.text
        self.api.written |= stack.offsets(blocked.headers["Headrace-Position"])


async def counted(api: stack.Api) -> None:
    """Wait until the counts have all that was written."""
    reader = open_s3_reader(COUNTS, Settings.read())
    wanted = {at: offset for at, offset in api.written.items() if "queries" in at}
    until_s = time.monotonic() + PATIENCE_S
    try:
        while True:
            applied = {f"{topic}/{at}": n for (topic, at), n in (await reader.applied()).items()}
            if all(applied.get(at, 0) > offset for at, offset in wanted.items()):
                return
            assert time.monotonic() < until_s, (wanted, applied)
            await asyncio.sleep(0.2)
    finally:
        await reader.close()


async def swapped(api: stack.Api, options: Options) -> Build:
    """Build a snapshot, and wait until the API answers from it."""
    built, pointer = await asyncio.to_thread(typeahead.publish, Settings.read(), options)
    until_s = time.monotonic() + PATIENCE_S
    while True:
        answer = await api.client.get("/v1/typeahead/snapshot")
        if answer.status_code == 200 and answer.json()["id"] == pointer.id:
            return built
        assert time.monotonic() < until_s
        await asyncio.sleep(0.1)


async def ask_all_the_time(people: People, asked: Sequence[str], done: asyncio.Event) -> list[Any]:
    """Suggestions to what is asked, again and again."""
    seen = []
    while not done.is_set():
        for typed in asked:
            params = {"q": f"{people.word} {typed}"}
            answer = await people.api.client.get("/v1/suggest", params=params)
            seen.append((typed, answer.status_code, answer.text))
        await asyncio.sleep(0.005)
    return seen


def rebuilt(projection: Any) -> None:
    """Rebuild one read model and compare; raises where it differs."""
    sink = open_sink(projection.store, projection.model, Settings.read())
    try:
        report = rebuild.run(SYSTEM, projection, sink, Settings.read(), verify=True)
    finally:
        sink.close()
    assert report.comparison


async def test_from_searches_to_suggestions(tmp_path: Path) -> None:
    """W and T on the real stack: searched for now and before, blocked, swapped under load while a
    worker is killed; then both read models are rebuilt and build the same snapshot.
    """
    folder = tmp_path / "worker"
    (folder / "second").mkdir(parents=True)
    await asyncio.to_thread(apply, Settings.read())
    async with stack.api(tmp_path) as api:
        people = People(api)
        with stack.worker(folder, *AGENTS) as process:
            await people.search("rising", 6)
            await people.search("poison now", 9)
            await people.search("steady", 5, ago_ms=30 * MINUTE_MS)
            await people.search("half a wo", 5, finished=False)
            await people.search("nowhere", 5, hits=0)
            await people.search("mine", 1, user_id=f"{people.word}-me")
            # W: a spike is there as soon as it is folded; half words and dead ends never are.
            assert await people.suggested() == [("poison now", "trending"), ("rising", "trending")]
            own = await people.suggested(user=f"{people.word}-me", limit=2)
            assert own == [("mine", "own"), ("poison now", "trending")]

            await people.block("POISON")
            assert await people.suggested() == [("rising", "trending")]
            await counted(api)
            built = await swapped(api, Options())
            assert built.blocked > 0
            popular = [("rising", "trending"), ("steady", "popular")]
            assert await people.suggested() == popular
            assert await people.suggested("stedy") == [("steady", "similar")]

            done = asyncio.Event()
            load = asyncio.create_task(ask_all_the_time(people, ("", "st", "poi"), done))
            for half_life_hours in (24, 48):
                await swapped(api, Options(half_life_hours))
            process.kill()
            process.wait()
        with stack.worker(folder / "second", *AGENTS):
            await people.search("after the crash", 4)
            await swapped(api, Options())
            assert ("after the crash", "trending") in await people.suggested()
            await counted(api)
        done.set()
        seen = await load
        assert len(seen) > 50
        assert {status for _, status, _ in seen} == {200}
        assert not [text for _, _, text in seen if "poison" in text]
        assert all("steady" in text for typed, _, text in seen if typed != "poi")

        before = await asyncio.to_thread(typeahead.build, Settings.read(), Options())
        for projection in SYSTEM.projections:
            await asyncio.to_thread(rebuilt, projection)
        after = await asyncio.to_thread(typeahead.build, Settings.read(), Options())
        assert (after.digest, after.terms, after.positions) == (
            before.digest,
            before.terms,
            before.positions,
        )
        again = await api.client.delete(f"/v1/typeahead/blocklist/{people.word} poison")
        assert again.status_code == 202
