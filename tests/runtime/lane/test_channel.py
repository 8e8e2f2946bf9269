"""Spans reach their agent in the order in which the reader handed them over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams.runtime.lane.service import LaneApp, build_app, span_channel
from streams.runtime.settings import Settings

SPANS = 100


async def arrivals(channel: Any) -> list[int]:
    """What a slow taker gets of `SPANS` numbers that another thread puts without waiting."""
    loop = asyncio.get_running_loop()
    got: list[int] = []

    async def take() -> None:
        async for event in channel:
            got.append(getattr(event, "value", event))
            await asyncio.sleep(0)
            if len(got) == SPANS:
                return

    def put() -> None:
        for number in range(SPANS):
            asyncio.run_coroutine_threadsafe(channel.put(number), loop)

    taking = asyncio.create_task(take())
    await asyncio.sleep(0.01)
    assert channel.subscriber_count, "nobody listens: what is put now is lost"
    await asyncio.to_thread(put)
    await asyncio.wait_for(taking, 30)
    return got


async def passing(channel: Any) -> list[int]:
    """What a taker gets of three numbers put in order, the last one just after the first was taken:
    before a put that waits for room has heard that there is some.
    """
    taker = aiter(channel)
    assert channel.subscriber_count, "nobody listens: what is put now is lost"
    earlier = [asyncio.create_task(channel.put(number)) for number in range(2)]
    await asyncio.sleep(0)
    got = [await anext(taker)]
    await channel.put(2)
    got += [await anext(taker), await anext(taker)]
    await asyncio.gather(*earlier)
    return [getattr(one, "value", one) for one in got]


@pytest.fixture
async def app(tmp_path: Path) -> LaneApp:
    made = await build_app("order", Settings.read().kafka, [], 6066, tmp_path)
    made.flow_control.resume()
    return made


async def test_no_span_passes_another(app: LaneApp) -> None:
    assert await arrivals(span_channel(app)) == list(range(SPANS))
    assert await passing(span_channel(app)) == [0, 1, 2]


async def test_a_bound_would_let_a_span_pass_one_that_waits_for_room(app: LaneApp) -> None:
    """The control: where this fails a bound is harmless, and `span_channel` may have one."""
    assert await passing(app.channel(maxsize=1)) == [0, 2, 1]
