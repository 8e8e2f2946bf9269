"""T: the store of feeds is emptied at a random moment, its worker killed at another; every feed is
the oracle's, and a rebuild under load gives the same digest.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from infra.cli import rebuild
from schemas.apply import apply
from sinks.drivers.redis import connect
from sinks.open import open_sink
from streams.feed import SYSTEM
from streams.runtime.settings import Settings
from tests import stack
from tests.feed.oracle import home
from tests.feed.people import CHANGES
from tests.feed.town import AGENTS, Town

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

USERS = [f"u{n}" for n in range(9)]
DEEDS = 90
EMPTY = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('UNLINK', key) end"
"""What FLUSHALL does, to the keys of one read model: all at once, under the worker's feet."""


async def live(town: Town, chance: random.Random, deeds: int) -> None:
    """Users do things, some at a time."""
    posts = list[tuple[str, str]]()

    async def act(number: int) -> None:
        user, author = chance.sample(USERS, 2)
        deed = chance.random()
        if deed < 0.5:
            posts.append((author, await town.post(author, f"{author} says {number}")))
        elif deed < 0.56 and posts:
            await town.remove(*posts.pop(chance.randrange(len(posts))))
        else:
            change: Any = chance.choice(CHANGES)
            await town.relate(user, change, author)

    for first in range(0, deeds, 6):
        await asyncio.gather(*(act(n) for n in range(first, min(first + 6, deeds))))


def empty(settings: Settings) -> None:
    with closing(connect(settings.redis.url.get_secret_value())) as client:
        before = len(client.keys("{feed-home*"))  # type: ignore[arg-type]
        client.eval(EMPTY, 0, "{feed-home*")
        assert before > 0


def rebuilt(settings: Settings) -> None:
    for projection in SYSTEM.projections:
        sink = open_sink(projection.store, projection.model, settings)
        try:
            rebuild.run(SYSTEM, projection, sink, settings, verify=True)
        finally:
            sink.close()


async def same_as_the_oracle(town: Town) -> None:
    oracles = town.oracles()
    expected = {user: home(oracles, town.name(user)) for user in USERS}
    assert {user: await town.feed(user, limit=7) for user in USERS} == expected
    assert sum(map(len, expected.values())) > 30


async def test_feeds_survive_the_loss_of_their_store_and_of_their_worker(tmp_path: Path) -> None:
    settings, chance = Settings.read(), random.Random(4)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    apply(settings)
    async with stack.api(tmp_path) as api:
        town = Town(api, tmp_path)
        with stack.worker(tmp_path / "one", *AGENTS) as worker:
            living = asyncio.create_task(live(town, chance, DEEDS))
            await asyncio.sleep(chance.uniform(0.2, 1.0))
            await asyncio.to_thread(empty, settings)
            await asyncio.sleep(chance.uniform(0.2, 1.0))
            worker.kill()
        with stack.worker(tmp_path / "two", *AGENTS):
            await living
            await same_as_the_oracle(town)
            living = asyncio.create_task(live(town, chance, DEEDS // 3))
            await asyncio.to_thread(rebuilt, settings)
            await living
            await same_as_the_oracle(town)
