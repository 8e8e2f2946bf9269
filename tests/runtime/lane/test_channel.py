"""Spans reach their agent in the order in which the reader handed them over."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from streams.runtime.lane.service import build_app, span_channel
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


async def test_no_span_passes_another(tmp_path: Path) -> None:
    app = await build_app("order", Settings.read().kafka, [], 6066, tmp_path)
    app.flow_control.resume()
    assert await arrivals(span_channel(app)) == list(range(SPANS))
    bounded = [await arrivals(app.channel(maxsize=2)) for _ in range(20)]
    assert any(one != list(range(SPANS)) for one in bounded), "a bound is harmless now: use one"
