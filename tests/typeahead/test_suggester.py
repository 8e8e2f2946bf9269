"""What is suggested, from snapshots, trends and own searches in memory."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from prometheus_client import CollectorRegistry

from connectors.typeahead.blocklist import Blocklist
from schemas.typeahead.events import PHRASE_BLOCKED
from sinks.readers.redis import Ranked, RedisReader
from sinks.typeahead import OWN
from sinks.typeahead.index import build
from sinks.typeahead.snapshots import Snapshots
from sinks.typeahead.suggester import NotReady, Suggester
from streams.runtime.metrics.edge import Suggestions
from streams.runtime.sink import SinkUnavailable
from tests.typeahead.searches import NOON_MS, Bucket, terms


class Recent:
    """The read model in Redis, in memory."""

    def __init__(self) -> None:
        self.minutes: dict[int, dict[str, int]] = defaultdict(dict)
        self.own: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.down = False

    async def applied(self) -> dict[tuple[str, int], int]:
        if self.down:
            raise SinkUnavailable("down")
        return {("typeahead.queries", 0): 7}

    async def top(self, ranking: str, board: Mapping[str, int], k: int) -> list[Ranked]:
        found = self.minutes.get(board["minute_ms"], {})
        return [Ranked(n, text, count, 0) for n, (text, count) in enumerate(found.items())][:k]

    async def buckets(self, table: str, buckets: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
        if self.down:
            raise SinkUnavailable("down")
        week = OWN.columns
        rows = [
            (one["user_id"], one["week_ms"], text, at)
            for one in buckets[-1:]
            for text, at in self.own[one["user_id"]]
        ]
        return pl.DataFrame(rows, week, orient="row")

    async def close(self) -> None:
        pass


class Desk:
    """A suggester over memory, and what to change it with."""

    def __init__(self, folder: Path) -> None:
        self.recent = Recent()
        self.bucket = Bucket()
        self.blocked = Blocklist()
        self.blocked.complete = True
        self.snapshots = Snapshots(self.bucket)
        self.registry = CollectorRegistry()
        self.suggester = Suggester(
            cast("RedisReader", self.recent),
            self.snapshots,
            self.blocked,
            folder,
            Suggestions(self.registry),
            now_ms=lambda: NOON_MS,
        )

    def built_s(self) -> float | None:
        """When the snapshot that answers was built, as metrics tell."""
        name = "headrace_typeahead_snapshot_built_timestamp_seconds"
        return self.registry.get_sample_value(name, {"system": "typeahead"})

    def block(self, phrase: str) -> None:
        self.blocked.fold(PHRASE_BLOCKED.fullname, {"phrase": phrase, "reason": ""})

    def publish(self, scores: Mapping[str, int]) -> None:
        self.snapshots.publish(
            build(terms(scores)),
            terms=len(scores),
            as_of_ms=NOON_MS,
            positions={},
            over=self.snapshots.live(),
            force=True,
        )

    async def swap(self, scores: Mapping[str, int]) -> None:
        self.publish(scores)
        await self.suggester.look_for_snapshot()

    async def ask(
        self, typed: str, limit: int = 5, user: str | None = None
    ) -> list[tuple[str, str]]:
        found = await self.suggester.suggest(typed, limit, user)
        return [(one.text, one.source) for one in found]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_the_most_popular_come_first(desk: Desk) -> None:
    await desk.swap({"godot": 3, "gogo": 9, "go": 5, "pozzo": 7})
    assert await desk.ask("go") == [("gogo", "popular"), ("go", "popular"), ("godot", "popular")]
    assert await desk.ask("GO", 1) == [("gogo", "popular")]
    assert [text for text, _ in await desk.ask("", 2)] == ["gogo", "pozzo"]


async def test_what_is_mistyped_is_found_behind_what_is_not(desk: Desk) -> None:
    await desk.swap({"waiting": 3, "wading": 9, "lucky": 1})
    assert await desk.ask("waitng") == [("waiting", "similar")]
    assert await desk.ask("wai", 1) == [("waiting", "popular")]
    assert await desk.ask("wai") == [("waiting", "popular"), ("wading", "similar")]


async def test_a_spike_is_there_at_the_next_look_and_gone_with_its_minutes(desk: Desk) -> None:
    await desk.swap({"elections": 100, "elephants": 50})
    desk.recent.minutes[NOON_MS] = {"eleven": 30, "Elephants": 2, "elephants": 2, "elbow": 2}
    await desk.suggester.look_for_trend()
    assert await desk.ask("ele") == [
        ("eleven", "trending"),
        ("Elephants", "trending"),
        ("elections", "popular"),
    ]
    assert await desk.suggester.applied() == {("typeahead.queries", 0): 7}
    desk.recent.minutes.clear()
    await desk.suggester.look_for_trend()
    assert [text for text, _ in await desk.ask("ele")] == ["elections", "elephants"]


async def test_own_searches_come_first_newest_first(desk: Desk) -> None:
    await desk.swap({f"god {n}": n + 1 for n in range(9)} | {"İstanbul": 1})
    desk.recent.own["u"] = [
        ("god 0", NOON_MS - 2),
        ("Godot", NOON_MS - 1),
        ("godot", NOON_MS - 9),
        ("golf", NOON_MS),
    ]
    found = await desk.ask("god", 4, "u")
    assert found == [("Godot", "own"), ("god 0", "own"), ("god 8", "popular"), ("god 7", "popular")]
    assert [source for _, source in await desk.ask("god", 4, "somebody else")] == ["popular"] * 4


async def test_without_redis_the_snapshot_answers(desk: Desk) -> None:
    await desk.swap({"godot": 1})
    desk.recent.down = True
    assert await desk.ask("g", user="u") == [("godot", "popular")]


async def test_nothing_is_suggested_before_the_blocklist_is_read(desk: Desk) -> None:
    await desk.swap({"godot": 1})
    desk.blocked.complete = False
    with pytest.raises(NotReady):
        await desk.ask("g")


async def test_a_blocked_term_is_shown_by_no_layer(desk: Desk) -> None:
    await desk.swap({"free money": 9, "free money now": 8, "freedom": 1})
    desk.recent.minutes[NOON_MS] = {"Free Money today": 99}
    desk.recent.own["u"] = [("FREE MONEY!", NOON_MS)]
    await desk.suggester.look_for_trend()
    assert len(await desk.ask("free", user="u")) == 5
    desk.block("free money")
    assert await desk.ask("free", user="u") == [("freedom", "popular")]
    assert await desk.ask("fre", user="u") == [("freedom", "popular")]
    assert await desk.ask("fere", user="u") == [("freedom", "similar")]


async def test_blocking_a_whole_list_uncovers_what_is_below_it(desk: Desk) -> None:
    await desk.swap({f"money {n:04}": n + 100 for n in range(900)} | {"mon ami": 2, "mon dieu": 1})
    desk.block("money")
    assert [text for text, _ in await desk.ask("mon", 5)] == ["mon ami", "mon dieu"]


async def test_a_swap_under_load_is_never_empty_and_never_shows_what_is_blocked(desk: Desk) -> None:
    """Snapshots are swapped while thousands of requests are answered; each of them holds a term
    that is blocked, as one that was built before it was."""
    desk.block("poison")
    rounds = [{f"p{n % 7} {n}": n + i for n in range(600)} | {"poison": 10**6} for i in range(4)]
    await desk.swap(rounds[0])
    done = asyncio.Event()
    seen: list[tuple[str, list[str]]] = []

    async def load() -> None:
        while not done.is_set():
            for typed in ("p", "p3", "poi", "po", "pison"):
                shown = [text for text, _ in await desk.ask(typed)]
                seen.append((typed, shown))
            await asyncio.sleep(0)

    loads = [asyncio.create_task(load()) for _ in range(4)]
    for scores in rounds[1:]:
        await desk.swap(scores)
        await asyncio.sleep(0.02)
    done.set()
    await asyncio.gather(*loads)
    assert len(seen) > 100
    assert all("poison" not in shown for _, shown in seen)
    assert all(len(shown) == 5 for typed, shown in seen if typed in {"p", "p3"})


async def test_a_snapshot_that_is_broken_leaves_the_stale_one(desk: Desk) -> None:
    async with desk.suggester.running():
        await desk.swap({"godot": 1})
        stale = desk.suggester.snapshot
        desk.publish({"pozzo": 1})
        found = desk.snapshots.live()
        assert found is not None
        desk.bucket.put(f"typeahead-snapshots/{found[0].id}.arrow", b"cut off")
        with pytest.raises(ValueError, match="not the snapshot"):
            await desk.suggester.look_for_snapshot()
        assert await desk.ask("") == [("godot", "popular")]
        assert desk.suggester.snapshot == stale


async def test_stores_that_are_away_at_the_start_do_not_keep_it_from_starting(desk: Desk) -> None:
    desk.recent.down = True
    async with desk.suggester.running():
        assert await desk.ask("g") == []
        await desk.swap({"godot": 1})
        assert await desk.ask("g") == [("godot", "popular")]


async def test_the_age_is_of_the_snapshot_that_answers(desk: Desk) -> None:
    """Not of one that is only published, or that cannot be read."""
    await desk.suggester.look_for_snapshot()
    assert desk.built_s() is None
    before_ms = time.time_ns() // 1_000_000
    await desk.swap({"godot": 1})
    first = desk.built_s()
    assert first is not None
    assert before_ms <= first * 1_000 <= time.time_ns() // 1_000_000
    await asyncio.sleep(0.01)  # the next one is of another millisecond
    desk.publish({"pozzo": 1})
    assert desk.built_s() == first
    found = desk.snapshots.live()
    assert found is not None
    key = f"typeahead-snapshots/{found[0].id}.arrow"
    content, _ = desk.bucket.get(key)
    desk.bucket.put(key, b"cut off")
    with pytest.raises(ValueError, match="not the snapshot"):
        await desk.suggester.look_for_snapshot()
    assert desk.built_s() == first
    desk.bucket.put(key, content)
    await desk.suggester.look_for_snapshot()
    assert desk.built_s() == found[0].built_ms / 1_000 > first
