"""Snowflake ids of one lease: pure arithmetic on the time that it is given.

A generator never makes an id with a timestamp outside of its lease's `[from_ms, until_ms)`, and
never two of the same. It cannot be made to by any clock, so a restart or a step of the clock
costs waiting, at most.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from schemas.ids.snowflake import PER_MS, first_id

Ids = npt.NDArray[np.int64]


class Behind(Exception):
    """The clock is `by_ms` before what ids have already reached: wait, or refuse."""

    def __init__(self, by_ms: int) -> None:
        super().__init__(f"the clock is {by_ms} ms behind the ids that were made")
        self.by_ms = by_ms


class Lapsed(Exception):
    """The lease has run out: renew it, or get another."""


class Generator:
    """Ids of one worker number. `last_ms` is the timestamp of the last one, 0 before the first."""

    def __init__(self, worker: int, from_ms: int, until_ms: int) -> None:
        first_id(from_ms, worker), first_id(until_ms, worker)  # both fit
        self.worker = worker
        self.until_ms = until_ms
        self.last_ms = 0
        self._from_ms = from_ms
        self._next = 0

    def extend(self, until_ms: int) -> None:
        """The lease was renewed."""
        self.until_ms = max(self.until_ms, until_ms)

    def issue(self, most: int, now_ms: int) -> Ids:
        """Up to `most` ids of this millisecond, rising; none where its 4,096 are used up.

        Raises `Behind` and `Lapsed`.
        """
        reached = max(self.last_ms, self._from_ms)
        if now_ms < reached:
            raise Behind(reached - now_ms)
        if now_ms >= self.until_ms:
            raise Lapsed
        if now_ms > self.last_ms:
            self.last_ms, self._next = now_ms, 0
        count = min(most, PER_MS - self._next)
        start = first_id(now_ms, self.worker) + self._next
        self._next += count
        return np.arange(start, start + count, dtype=np.int64)

    def issue_into(self, out: Ids, clock: Callable[[], int]) -> int:
        """Fill `out` for as long as there are ids without waiting; returns how many."""
        done = 0
        while done < out.size:
            made = self.issue(out.size - done, clock())
            if not made.size:
                break
            out[done : done + made.size] = made
            done += made.size
        return done


class LogClock:
    """Milliseconds since 1970 as the log counts them: its time at the last lease or renewal, and
    what this machine's steady clock has run since. The wall clock may be set as anybody likes.
    """

    def __init__(
        self, log_ms: int, steady_ns: Callable[[], int] = lambda: time.clock_gettime_ns(_STEADY)
    ) -> None:
        self._steady_ns = steady_ns
        self.set(log_ms)

    def set(self, log_ms: int) -> None:
        """What the log's time was a moment ago."""
        self._log_ms, self._at_ns = log_ms, self._steady_ns()

    def __call__(self) -> int:
        return self._log_ms + (self._steady_ns() - self._at_ns) // 1_000_000


_STEADY: Any = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 1))
"""The one that goes on while the machine sleeps, where there is one."""
