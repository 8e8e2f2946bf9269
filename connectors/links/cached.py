"""Links in the process: one question to the stores for any number of requests at once.

What is known is believed for `ttl_ms`, and so is that there is no such link, which keeps those who
guess codes from the stores. When no store answers, what was known is still told.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

from streams.runtime.sink import SinkError

TTL_MS: Final = 1_000
ENTRIES_MAX: Final = 100_000

Value = TypeVar("Value")


class Cached(Generic[Value]):
    """A bounded cache in front of `look`; the entries used longest ago go first."""

    def __init__(
        self,
        look: Callable[[str], Awaitable[Value | None]],
        *,
        ttl_ms: int = TTL_MS,
        entries_max: int = ENTRIES_MAX,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look = look
        self._ttl_s = ttl_ms / 1_000
        self._max = entries_max
        self._now_s = now_s
        self._known: OrderedDict[str, tuple[float, Value | None]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Value | None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: str) -> Value | None:
        """The value; None where there is none. Raises `SinkError` when no store answers and
        nothing was known.
        """
        known = self._known.get(key)
        if known is not None and known[0] > self._now_s():
            self._known.move_to_end(key)
            return known[1]
        task = self._asked.get(key)
        if task is None:
            task = asyncio.create_task(self._refreshed(key))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        # One request that goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def _refreshed(self, key: str) -> Value | None:
        try:
            value = await self._look(key)
        except SinkError:
            stale = self._known.get(key)
            if stale is None:
                raise
            value = stale[1]
        self._known[key] = self._now_s() + self._ttl_s, value
        self._known.move_to_end(key)
        if len(self._known) > self._max:
            self._known.popitem(last=False)
        return value
