"""Both algorithms by the book: fractions and lists, no line shared with the product."""

from __future__ import annotations

from fractions import Fraction


class NaiveBucket:
    """Tokens that drip in, one key."""

    def __init__(self, limit: int, window_ms: int, burst: int) -> None:
        self._per_ms = Fraction(limit, window_ms)
        self._burst = burst
        self._tokens = Fraction(burst)
        self._at: int | None = None

    def admits(self, now_ms: int, units: int) -> bool:
        """Whether the units are there; takes them if so."""
        if self._at is not None and now_ms > self._at:
            dripped = (now_ms - self._at) * self._per_ms
            self._tokens = min(Fraction(self._burst), self._tokens + dripped)
        self._at = now_ms if self._at is None else max(self._at, now_ms)
        if units > self._tokens:
            return False
        self._tokens -= units
        return True


class NaiveWindow:
    """A list of what was admitted, one key. Units count until their slot has left the window. Time
    must not go back."""

    def __init__(self, limit: int, window_ms: int, slots: int) -> None:
        self._limit = limit
        self._window_ms = window_ms
        self._size = window_ms // slots
        self.log: list[tuple[int, int]] = []

    def admits(self, now_ms: int, units: int) -> bool:
        """Whether the units are there; takes them if so."""
        used = 0
        for at, taken in reversed(self.log):
            end_of_slot = (at // self._size + 1) * self._size
            if end_of_slot + self._window_ms <= now_ms:
                break  # all before it are older
            used += taken
        if used + units > self._limit:
            return False
        self.log.append((now_ms, units))
        return True


def most_in_any_window(log: list[tuple[int, int]], window_ms: int) -> int:
    """The most units within any `window_ms`, wherever it begins."""
    return max(
        (sum(n for at, n in log if start <= at < start + window_ms) for start, _ in log),
        default=0,
    )
