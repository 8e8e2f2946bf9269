"""URLs in, countries, the cache, and clicks on their way out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.links.cached import Cached
from connectors.links.clicks import ClickLog
from connectors.links.networks import network_of
from connectors.links.target import CHARS_MAX, host_of, target
from connectors.producer import Saturated, Undelivered
from streams.runtime.sink import SinkUnavailable
from tests.links.desk import click

WHATWG = {
    "http://example.com": "http://example.com/",
    "HTTP://EXAMPLE.com:80/a/../b": "http://example.com/b",
    "https:example.org": "https://example.org/",
    "https:/\\example.org\\x": "https://example.org/x",
    "  https://a.example/ b  ": "https://a.example/%20b",
    "https://a.ex\tample/\nx": "https://a.example/x",
    "https://bücher.example/ü?q=ü#ü": "https://xn--bcher-kva.example/%C3%BC?q=%C3%BC#%C3%BC",
    "http://0x7f.1/": "http://127.0.0.1/",
    "http://[::1]:8080/": "http://[::1]:8080/",
    "http://Ｇｏ.com": "http://go.com/",
    "http://xn--n3h.example/a^b": "http://xn--n3h.example/a%5Eb",
}


@pytest.mark.parametrize("text", WHATWG)
def test_a_url_is_written_as_the_standard_says(text: str) -> None:
    assert target(text) == WHATWG[text]
    assert target(target(text)) == target(text)


@pytest.mark.parametrize(
    "text",
    ["", "example.org", "/path", "//example.org", "javascript:alert(1)", "data:text/html,x",
     "file:///etc/passwd", "ftp://a.example/", "java\nscript:alert(1)", "http://", "https://a b/",
     "http://a.example:99999/", "http://1.2.3.4.5.6/", "http://[::1", "https://u@a.example/",
     "https://bank.example:pw@evil.example/", "http://a%00b/", "http://xn--/", "http://xn--a.example/",
     "http://xn--pokxncvks/", "https://" + "a" * CHARS_MAX,
     "https://a.example/" + "ü" * 1_000, "https://hr.example/abc", "HTTPS://HR.EXAMPLE"],
)  # fmt: skip
def test_what_a_link_must_not_lead_to(text: str) -> None:
    with pytest.raises(ValueError, match=r"URL|http|short link"):
        target(text, "hr.example")


@given(st.text(max_size=60))
def test_no_url_splits_a_header(text: str) -> None:
    try:
        found = target(f"https://a.example/{text}")
    except ValueError:
        return
    assert found.isascii()
    assert found.isprintable()
    assert " " not in found


def test_of_a_referrer_only_the_host_is_kept() -> None:
    assert host_of("https://News.Example:8443/secret?token=1") == "news.example"
    assert host_of("not a url") == ""


NETWORKS = {
    "192.0.2.255": "192.0.2.0/24",
    "2001:db8:1:2::9": "2001:db8:1::/48",
    "::ffff:192.0.2.7": "192.0.2.0/24",
    "fe80::1%eth0": "fe80::/48",
    "192.0.2": "",
    "unix:": "",
    "": "",
}


@pytest.mark.parametrize("address", NETWORKS)
def test_of_an_address_only_the_network_is_kept(address: str) -> None:
    assert network_of(address) == NETWORKS[address]


class Store:
    """Counts looks; waits for `open`; fails while `down`."""

    def __init__(self) -> None:
        self.looks, self.now, self.down = 0, 0.0, False
        self.open = asyncio.Event()
        self.open.set()

    async def look(self, key: str) -> str | None:
        self.looks += 1
        await self.open.wait()
        if self.down:
            raise SinkUnavailable("down")
        return key.upper() if key != "none" else None

    def cached(self, entries_max: int = 10) -> Cached[str]:
        return Cached(self.look, ttl_ms=1_000, entries_max=entries_max, now_s=lambda: self.now)


async def test_a_thousand_at_once_are_one_look() -> None:
    store = Store()
    store.open.clear()
    cached = store.cached()
    asked = [asyncio.create_task(cached.get("a")) for _ in range(1_000)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(0)
    store.open.set()
    answers = await asyncio.gather(*asked[1:])
    assert (set(answers), store.looks) == ({"A"}, 1)


async def test_what_is_known_is_believed_for_a_second_also_that_there_is_nothing() -> None:
    store = Store()
    cached = store.cached()
    for _ in range(5):
        assert await cached.get("none") is None
    assert store.looks == 1
    store.now = 1.5
    await cached.get("none")
    assert store.looks == 2


async def test_what_is_wanted_often_is_asked_for_ahead_so_that_nobody_waits() -> None:
    store = Store()
    cached = store.cached()
    await cached.get("a")
    store.now = 0.95
    store.open.clear()
    for _ in range(5):
        assert await cached.get("a") == "A", "while it is asked for, what is known is told"
    store.open.set()
    await asyncio.gather(*cached._asked.values())
    store.now = 1.8
    assert (await cached.get("a"), store.looks) == ("A", 2)


async def test_what_came_at_once_is_not_asked_for_at_once_again() -> None:
    store = Store()
    cached = store.cached(entries_max=100)
    await asyncio.gather(*(cached.get(f"k{n}") for n in range(100)))
    assert len({known.again_s for known in cached._known.values()}) > 90
    assert all(0.5 <= known.again_s <= 0.9 for known in cached._known.values())


async def test_it_is_bounded() -> None:
    store = Store()
    cached = store.cached(entries_max=3)
    for n in range(50):
        await cached.get(f"k{n}")
    assert len(cached) == 3


async def test_what_was_known_outlives_the_stores() -> None:
    store = Store()
    cached = store.cached()
    await cached.get("a")
    store.now, store.down = 100.0, True
    assert await cached.get("a") == "A"
    with pytest.raises(SinkUnavailable):
        await cached.get("b")
    store.down, store.now = False, 200.0
    assert await cached.get("b") == "B"


class Producer:
    def __init__(self, error: Exception | None = None) -> None:
        self.sent: list[Any] = []
        self.error = error
        self.came = asyncio.Event()

    async def send(self, topic: str, record_name: str, row: Any, headers: Any = ()) -> Any:
        raise AssertionError("one by one")

    async def send_many(self, topic: str, rows: Any, headers: Any = ()) -> Any:
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        self.sent.append([row for _, row in rows])
        self.came.set()


async def test_clicks_are_sent_in_the_background_and_waited_for_at_the_end() -> None:
    producer = Producer()
    async with ClickLog(producer) as clicks:
        for n in range(100):
            clicks.record(click(at_ms=n))
        assert not producer.sent
    assert ([len(part) for part in producer.sent], clicks.lost) == ([100], 0)


async def test_a_click_is_on_its_way_soon() -> None:
    producer = Producer()
    async with ClickLog(producer) as clicks:
        for n in range(2):
            clicks.record(click(at_ms=n))
            await producer.came.wait()
            producer.came.clear()
    assert len(producer.sent) == 2


@pytest.mark.parametrize("error", [Saturated(1), Undelivered("x")])
async def test_a_click_that_may_be_lost_is_counted(error: Exception) -> None:
    async with ClickLog(Producer(error)) as clicks:
        clicks.record(click())
        clicks.record(click())
    assert clicks.lost == 2
