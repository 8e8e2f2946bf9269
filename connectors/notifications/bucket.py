"""A token bucket and a circuit breaker, on a clock that is handed in (milliseconds)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Clock = Callable[[], float]
"""Milliseconds; only differences count."""


@dataclass
class Bucket:
    """A token bucket, kept as the time at which the next token is due (GCRA, ITU-T I.371): no
    window of any length passes more than `burst` + rate · length.
    """

    rate_per_s: float
    burst: int
    clock: Clock
    _due_ms: float = field(default=float("-inf"), init=False)

    def take(self, wait_ms_max: float) -> float | None:
        """Take a token and say how long to wait for it (milliseconds); None, and nothing is taken,
        where that is longer than `wait_ms_max`.
        """
        now, each = self.clock(), 1_000 / self.rate_per_s
        due = max(self._due_ms, now - each * (self.burst - 1))
        wait = max(0.0, due - now)
        if wait > wait_ms_max:
            return None
        self._due_ms = due + each
        return wait

    def pause(self, ms: float) -> None:
        """No token for so long, and then none saved up: the provider said so."""
        self._due_ms = max(self._due_ms, self.clock() + ms)

    @property
    def wait_ms(self) -> float:
        """How long a token would be waited for now."""
        each = 1_000 / self.rate_per_s
        return max(0.0, max(self._due_ms, self.clock() - each * (self.burst - 1)) - self.clock())


@dataclass
class Breaker:
    """After `failures` in a row no call for `open_ms`; then one, whose end decides."""

    failures: int
    open_ms: float
    clock: Clock
    _failed: int = field(default=0, init=False)
    _until_ms: float = field(default=float("-inf"), init=False)

    @property
    def wait_ms(self) -> float:
        """How long no call is allowed; 0: one is."""
        return max(0.0, self._until_ms - self.clock())

    def admit(self) -> bool:
        """Whether a call may be made. Where the breaker was open this is the one that tries: until
        it has ended no other is admitted.
        """
        if self.wait_ms > 0:
            return False
        if self._failed >= self.failures:
            self._until_ms = self.clock() + self.open_ms
        return True

    def succeeded(self) -> None:
        """The provider answered."""
        self._failed, self._until_ms = 0, float("-inf")

    def failed(self) -> None:
        """The provider did not answer, or is broken."""
        self._failed += 1
        if self._failed >= self.failures:
            self._until_ms = self.clock() + self.open_ms
