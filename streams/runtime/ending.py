"""Ending background tasks."""

from __future__ import annotations

import asyncio
from typing import Any

AGAIN_S = 0.5


async def end(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended, however they end.

    A cancellation may be lost: a library turns it into an error of its own, or what it interrupts
    is done at that moment (`asyncio.wait_for` before Python 3.12). A task that goes on in a loop is
    therefore cancelled again, else who waits for it would wait for ever.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        ended, left = await asyncio.wait(left, timeout=AGAIN_S)
        for task in ended:
            if not task.cancelled():
                task.exception()  # theirs to tell while they ran; not the loop's now
