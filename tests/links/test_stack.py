"""Short links through the whole product: made, followed, capped, counted."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sinks.links import COPY, TABLE, LinksReader
from sinks.open import open_cassandra_reader
from sinks.readers.redis import RedisReader
from streams.runtime.settings import Settings
from tests import stack
from tests.links.desk import PERSON
from tests.links.shop import AGENTS, PATIENCE_S, Shop

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), *AGENTS):
        yield


@pytest.fixture
async def shop(worker: None, tmp_path: Path) -> AsyncIterator[Shop]:
    async with stack.api(tmp_path) as opened:
        yield Shop(opened)


async def test_made_followed_and_refused(shop: Shop) -> None:
    alias = f"a-{uuid.uuid4().hex[:12]}"
    made = (await shop.shorten("HTTPS://Example.ORG/a/../b", alias=alias, ttl=3_600)).json()
    assert made["longUrl"] == "https://example.org/b"
    assert made["shortUrl"].endswith(f"/{alias}")
    there = await shop.follow(alias)
    assert (there.status_code, there.headers["Location"]) == (302, "https://example.org/b")
    assert there.headers["Cache-Control"] == "no-store"
    assert (await shop.shorten(alias=alias)).status_code == 409
    assert (await shop.follow("nobody-has-this")).status_code == 404
    assert (await shop.shorten("javascript:alert(1)")).status_code == 422

    forever = (await shop.shorten(permanent=True)).json()
    remembered = await shop.follow(forever["code"])
    assert (remembered.status_code, len(forever["code"])) == (301, 7)
    assert remembered.headers["Cache-Control"] == "private, max-age=86400"

    brief = (await shop.shorten(ttl=1)).json()["code"]
    await asyncio.sleep(1.1)
    assert (await shop.follow(brief)).status_code == 410


async def test_a_disabled_link_is_gone_within_the_time_it_is_believed(shop: Shop) -> None:
    code = (await shop.shorten()).json()["code"]
    assert (await shop.follow(code)).status_code == 302
    off = await shop.client.patch(f"/v1/urls/{code}", json={"disabled": True})
    assert off.json()["disabled"] is True
    shop._api.written |= stack.offsets(off.headers["Headrace-Position"])
    assert (await shop.read(code))["disabled"] is True
    await asyncio.sleep(1.1)
    assert (await shop.follow(code)).status_code == 410


async def test_of_fifty_at_once_exactly_ten_get_through(shop: Shop) -> None:
    code = (await shop.shorten(clicksMax=10)).json()["code"]
    answers = await asyncio.gather(*(shop.follow(code) for _ in range(50)))
    assert Counter(one.status_code for one in answers) == {302: 10, 410: 40}
    assert sum((await shop.clicks(code, "day", 10)).values()) == 10


async def test_clicks_of_people_are_counted_by_where_they_come_from(shop: Shop) -> None:
    code = (await shop.shorten()).json()["code"]
    for n in range(6):
        page = f"https://{'News' if n % 2 else 'blog'}.example/page?secret=1"
        await shop.follow(code, Referer=page)
    for agent in ("Twitterbot/1.0", "curl/8"):
        assert (await shop.follow(code, agent)).status_code == 302
    for _ in range(3):
        head = await shop.client.head(f"/{code}", headers={"User-Agent": PERSON})
        assert head.headers["Location"] == "https://example.org/a"
    assert await shop.clicks(code, "referrer", 6) == {"blog.example": 3, "news.example": 3}
    assert await shop.clicks(code, "country", 6) == {"ZZ": 6}
    assert await shop.clicks(code, "device", 6) == {"desktop": 6}
    assert sum((await shop.clicks(code, "hour", 6)).values()) == 6


async def test_links_are_followed_though_redis_is_lost(shop: Shop) -> None:
    code = (await shop.shorten("https://example.org/kept")).json()["code"]
    settings = Settings.read()
    lost = RedisReader(TABLE, "redis://127.0.0.1:1/0", timeout_s=0.5)
    reader = LinksReader(lost, open_cassandra_reader(COPY, settings))
    try:
        found = await reader.link(code)
        for _ in range(int(PATIENCE_S * 10)):
            if found is not None:
                break
            await asyncio.sleep(0.1)
            found = await reader.link(code)
        assert found is not None
        assert found.url == "https://example.org/kept"
        assert await reader.link("nobody-has-this") is None
    finally:
        await reader._second.close()
        await lost.close()
