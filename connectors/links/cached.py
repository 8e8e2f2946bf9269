"""Links in the process: one question to the stores for any number of requests at once.

What is known is believed for `ttl_ms`, and so is that there is no such link, which keeps those who
guess codes from the stores. What is wanted often is asked for again before that, at a moment of its
own, so nobody waits for it, and what came at once is not asked for at once again. When no store
answers, what was known is still told.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from streams.runtime.sink import SinkError

TTL_MS: Final = 1_000
AHEAD: Final = 0.5, 0.9
"""From which part of its time on what is known is asked for again: picked evenly in between."""
ENTRIES_MAX: Final = 100_000

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class _Known(Generic[Value]):
    value: Value | None
    again_s: float
    """From then on the next who wants it has it asked for again."""
    until_s: float
    """From then on it is not believed any more."""


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
        self._known: OrderedDict[str, _Known[Value]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[Value | None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def get(self, key: str) -> Value | None:
        """The value; None where there is none. Raises `SinkError` when no store answers and
        nothing was known.
        """
        known, now_s = self._known.get(key), self._now_s()
        if known is not None and now_s < known.until_s:
            self._known.move_to_end(key)
            if now_s >= known.again_s:
                self._ask(key)
            return known.value
        # One request that goes away must not take the answer from the others.
        return await asyncio.shield(self._ask(key))

    def _ask(self, key: str) -> asyncio.Task[Value | None]:
        task = self._asked.get(key)
        if task is None:
            task = asyncio.create_task(self._refreshed(key))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return task

    async def _refreshed(self, key: str) -> Value | None:
        try:
            value = await self._look(key)
        except SinkError:
            stale = self._known.get(key)
            if stale is None:
                raise
            value = stale.value
        now_s = self._now_s()
        again_s = now_s + self._ttl_s * random.uniform(*AHEAD)  # noqa: S311 - no secret
        self._known[key] = _Known(value, again_s, now_s + self._ttl_s)
        self._known.move_to_end(key)
        if len(self._known) > self._max:
            self._known.popitem(last=False)
        return value
