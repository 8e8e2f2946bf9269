"""The feed through the whole product: what the API takes, refuses and shows.

T: the store of feeds is emptied at a random moment, its worker killed at another; every feed is the
oracle's, and a rebuild under load gives the same digest.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from infra.cli import rebuild
from sinks.drivers.redis import connect
from sinks.open import open_sink
from streams.feed import SYSTEM
from streams.runtime.settings import Settings
from tests import stack
from tests.feed.oracle import home
from tests.feed.people import CHANGES
from tests.feed.town import AGENTS, Town

pytestmark = pytest.mark.stack

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


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Popen[bytes]]:
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS) as process:
        yield process


@pytest.fixture
async def town(worker: Popen[bytes], tmp_path: Path) -> AsyncIterator[Town]:
    async with stack.api(tmp_path) as api:
        yield Town(api, tmp_path)


async def test_posts_come_and_go(town: Town) -> None:
    for author in ("ann", "bob"):
        await town.relate("u", "followed", author)
    first = [await town.post("ann", f"ann {n}") for n in range(3)]
    assert await town.feed("u", limit=2) == first[::-1]
    page = await town.page("u", limit=2)
    later = await town.post("bob", "two\nlines")
    rest = await town.page("u", limit=2, cursor=page["next"])
    assert [one["postId"] for one in rest["posts"]] == first[:1]
    assert (await town.page("u", limit=1))["posts"][0]["text"] == "two\nlines"
    assert await town.feed("u", order="ranked", limit=1) == [later, *first[::-1]]

    await town.remove("ann", first[1])
    assert await town.feed("u") == [later, first[2], first[0]]
    await town.relate("u", "muted", "ann")
    assert await town.feed("u") == [later]
    await town.relate("u", "unmuted", "ann")
    await town.relate("bob", "blocked", "u")
    assert await town.feed("u") == [first[2], first[0]]
    await town.relate("u", "unfollowed", "ann")
    assert await town.feed("u") == []
    await town.relate("u", "followed", "ann")
    assert await town.feed("u") == [first[2], first[0]]
    assert (await town.ask("u", "GET", "/v1/follows")).json() == sorted(
        map(town.name, ("ann", "bob"))
    )
    shown = await town.ask("u", "GET", f"/v1/posts/{later}")
    assert (shown.json()["author"], shown.status_code) == (town.name("bob"), 200)
    assert "Headrace-Applied" in shown.headers


async def test_a_repeat_with_the_same_key_is_the_same_post(town: Town) -> None:
    keyed = {"Idempotency-Key": "k-1"}
    made = await town.ask("u", "POST", "/v1/posts", {"text": "once"}, **keyed)
    again = await town.ask("u", "POST", "/v1/posts", {"text": "once"}, **keyed)
    assert (made.status_code, again.status_code) == (201, 201)
    assert (made.json(), again.headers["Idempotent-Replay"]) == (again.json(), "true")
    other = await town.ask("u", "POST", "/v1/posts", {"text": "twice"}, **keyed)
    assert other.status_code == 422
    assert await town.feed("u") == [made.json()["postId"]]


async def test_bad_input_gets_a_clear_error(town: Town) -> None:
    newest = (await town.page("u"))["next"]
    assert newest is None
    theirs = await town.post("ann", "mine")
    for method, path, body, status, words in (
        ("POST", "/v1/posts", {"text": ""}, 422, "#/text"),
        ("POST", "/v1/posts", {"text": "a\x00b"}, 422, "#/text"),
        ("POST", "/v1/posts", {"text": "x" * 5_001}, 422, "#/text"),
        ("POST", "/v1/posts", {"text": "x", "mediaUrl": "javascript:x"}, 422, "#/mediaUrl"),
        ("POST", "/v1/posts", {"text": "x", "eventTime": "2099-01-01T00:00:00Z"}, 422, "future"),
        ("POST", "/v1/posts", {"text": "x", "author": "ann"}, 422, "#/author"),
        ("DELETE", f"/v1/posts/{theirs}", None, 404, "no such post"),
        ("PUT", f"/v1/follows/{town.name('u')}", None, 422, "yourself"),
        ("GET", "/v1/posts/nothing", None, 404, "no such post"),
        ("GET", "/v1/feed?cursor=abc", None, 422, "not a cursor"),
        ("GET", "/v1/feed?cursor=W10=&order=ranked", None, 422, "not a cursor"),
        ("GET", "/v1/feed?order=best", None, 422, "order"),
        ("GET", "/v1/feed?limit=101", None, 422, "limit"),
    ):
        answer = await town.ask("u", method, path, body)
        assert answer.status_code == status, (path, body, answer.text)
        assert words in answer.text
    long = {"Idempotency-Key": "k" * 256}
    assert (await town.ask("u", "POST", "/v1/posts", {"text": "x"}, **long)).status_code == 400
    assert (await town.ask("u", "GET", "/v1/feed", Authorization="")).status_code == 401


async def test_feeds_survive_the_loss_of_their_store_and_of_their_worker(
    town: Town, worker: Popen[bytes], tmp_path: Path
) -> None:
    """Last: it ends the worker of this module."""
    settings, chance = Settings.read(), random.Random(4)
    living = asyncio.create_task(live(town, chance, DEEDS))
    await asyncio.sleep(chance.uniform(0.2, 0.8))
    await asyncio.to_thread(empty, settings)
    await asyncio.sleep(chance.uniform(0.2, 0.8))
    worker.kill()
    (tmp_path / "next").mkdir()
    with stack.worker(tmp_path / "next", *AGENTS):
        await living
        await same_as_the_oracle(town)
        living = asyncio.create_task(live(town, chance, DEEDS // 3))
        await asyncio.to_thread(rebuilt, settings)
        await living
        await same_as_the_oracle(town)
