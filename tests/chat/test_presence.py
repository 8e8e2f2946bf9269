"""Sessions and typing on the real Redis: both pass by themselves."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from connectors.chat.typing import Typing
from sinks.chat.presence import Presence
from streams.runtime.settings import Settings
from streams.runtime.sink import SinkUnavailable

pytestmark = pytest.mark.stack


async def test_a_session_lasts_as_long_as_its_heartbeat() -> None:
    ada, bob = (f"{name}-{uuid.uuid4().hex}" for name in ("ada", "bob"))
    async with Presence.open(Settings.read(), ttl_ms=400) as presence:
        await presence.heard([(ada, "s1"), (ada, "s2"), (bob, "s3")], "server")
        assert await presence.sessions([ada]) == {ada: {"s1": "server", "s2": "server"}}
        await presence.left([(bob, "s3"), (ada, "s1")])
        assert await presence.online([ada, bob, "nobody"]) == {
            **{ada: True, bob: False},
            "nobody": False,
        }
        for _ in range(4):
            await asyncio.sleep(0.2)
            await presence.heard([(ada, "s2")], "server")
        assert await presence.online([ada]) == {ada: True}
        await asyncio.sleep(0.6)
        assert await presence.online([ada]) == {ada: False}
        assert await presence.online([]) == {}


async def test_without_redis_it_says_so() -> None:
    settings = Settings.read().model_copy(
        update={"redis": Settings(redis={"url": "redis://127.0.0.1:1/0"}).redis}
    )
    async with Presence.open(settings) as presence:
        with pytest.raises(SinkUnavailable, match="presence"):
            await presence.online(["bob"])


async def test_typing_is_heard_in_every_process() -> None:
    url, channel = Settings.read().redis.url.get_secret_value(), f"test:{uuid.uuid4().hex}"
    heard: list[tuple[int, str, str]] = []
    async with (
        Typing(url, lambda *who: heard.append((1, *who)), channel) as first,
        Typing(url, lambda *who: heard.append((2, *who)), channel) as second,
    ):
        await asyncio.wait_for(first.subscribed.wait(), 5)
        await asyncio.wait_for(second.subscribed.wait(), 5)
        await first.tell("room", "bob")
        for _ in range(100):
            if len(heard) == 2:
                break
            await asyncio.sleep(0.02)
    assert sorted(heard) == [(1, "room", "bob"), (2, "room", "bob")]


async def test_typing_is_lost_without_redis_and_nobody_minds() -> None:
    async with Typing("redis://127.0.0.1:1/0", lambda *_: None) as typing:
        await typing.tell("room", "bob")
    assert not typing.subscribed.is_set()
