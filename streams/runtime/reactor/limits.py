"""Keeping to what a provider allows: token buckets that a handler waits at.

    rate = Rate(per_s=14, burst=28, wait_ms_max=2_000)

    async def act(self, task):
        await rate.acquire("ses")
        ...

A bucket is one number (GCRA, ITU-T I.371): the time at which it will be full again. Buckets are
per process: with n workers give each an n-th of what the provider allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from streams.runtime.reactor.rules import Retry

_SPARE_BUCKETS_MAX = 10_000


@dataclass
class TokenBucket:
    """`per_s` tokens a second, at most `burst` at once; full at first. Times in milliseconds, from
    any clock that does not go back.
    """

    per_s: float
    burst: int = 1
    _full_at_ms: float = field(default=float("-inf"), init=False)

    def __post_init__(self) -> None:
        """Raises `ValueError`."""
        if self.per_s <= 0 or self.burst < 1:
            raise ValueError("a token bucket has a rate above 0 and a burst of at least 1")

    def wait_ms(self, now_ms: float) -> float:
        """How long until there is a token; 0: there is one."""
        missing_ms = max(self._full_at_ms - now_ms, 0.0)
        return max(0.0, missing_ms - (self.burst - 1) * 1_000 / self.per_s)

    def take(self, now_ms: float) -> float:
        """Reserve a token and return when it may be used, in milliseconds from now."""
        wait_ms = self.wait_ms(now_ms)
        self._full_at_ms = max(self._full_at_ms, now_ms) + 1_000 / self.per_s
        return wait_ms

    def full(self, now_ms: float) -> bool:
        """Whether it is as good as new."""
        return self._full_at_ms <= now_ms


@dataclass
class Rate:
    """A bucket for each name (a provider, an account). Used from one event loop."""

    per_s: float
    burst: int = 1
    wait_ms_max: int = 2_000
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    _buckets: dict[str, TokenBucket] = field(default_factory=dict, init=False)

    async def acquire(self, name: str = "") -> None:
        """Return when one call may be made. Raises `Retry`, which costs no try, when that would
        take longer than `wait_ms_max`; no token is taken then.
        """
        now_ms = self.clock() * 1_000
        if len(self._buckets) > _SPARE_BUCKETS_MAX:
            kept = {key: one for key, one in self._buckets.items() if not one.full(now_ms)}
            self._buckets = kept
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket(self.per_s, self.burst)
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms > self.wait_ms_max:
            reason = f"rate limit of {name}" if name else "rate limit"
            raise Retry(reason, after_ms=round(wait_ms), counts=False)
        bucket.take(now_ms)
        if wait_ms:
            await self.sleep(wait_ms / 1_000)
