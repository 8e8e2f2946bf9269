from __future__ import annotations

import asyncio

import pytest

from streams.runtime.ending import end


async def stubborn(lost: int) -> None:
    """Goes on in spite of so many cancellations, as after an error of a client."""
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            lost -= 1
            if lost < 0:
                raise


async def broken() -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ConnectionError("gone") from None


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_task_ends_though_cancellations_are_lost(lost: int) -> None:
    tasks = [asyncio.create_task(stubborn(lost)), asyncio.create_task(broken())]
    await asyncio.sleep(0)
    await asyncio.wait_for(end(*tasks), 30)
    assert all(task.done() for task in tasks)


async def test_of_none_there_is_nothing_to_end() -> None:
    await end()
