"""Who may run now, who waits, who has to come back later. Pure.

Work-conserving: nobody waits whose limits all have room. A full target holds back only its own
tasks: whoever waits, waits in the line of the one limit that stops it. When the lines together are
full, the longest gives up its last (longest queue drop: Suter et al., 1998), so that a slow target
cannot crowd the others out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from streams.runtime.reactor.rules import Limits, Route

T = TypeVar("T")
_Name = tuple[str, str]
_TARGET, _TENANT = "target", "tenant"


@dataclass
class Moves(Generic[T]):
    """What follows: who starts now, and who has to come back later."""

    start: list[T] = field(default_factory=list)
    park: list[T] = field(default_factory=list)


class Admission(Generic[T]):
    """Limits of one reactor in one process. Items that started must be released."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._bound = {_TARGET: limits.per_target, _TENANT: limits.per_tenant}
        self._running = 0
        self._by_name: Counter[_Name] = Counter()
        self._lines: dict[_Name, deque[tuple[Route, T]]] = {}
        self._ready: deque[tuple[Route, T]] = deque()
        self._waiting = 0

    @property
    def running(self) -> int:
        """Items that started and were not released."""
        return self._running

    @property
    def waiting(self) -> int:
        """Items in line for a target or a tenant."""
        return self._waiting

    @property
    def saturated(self) -> bool:
        """Whether items wait only because everything is taken: read no more then."""
        return bool(self._ready)

    def offer(self, route: Route, item: T) -> Moves[T]:
        """A new item: it starts, waits, or somebody (often itself) has to come back later."""
        moves: Moves[T] = Moves()
        self._place(route, item, moves)
        return self._bounded(moves)

    def release(self, route: Route) -> Moves[T]:
        """An item that had started is over."""
        self._running -= 1
        for name in _names(route):
            self._by_name[name] -= 1
            if not self._by_name[name]:
                del self._by_name[name]
        return self._refill(_names(route))

    def withdraw(self, unwanted: Callable[[T], bool]) -> None:
        """Forget waiting items; those that started are released by their owner."""
        for name, line in list(self._lines.items()):
            kept = deque(one for one in line if not unwanted(one[1]))
            self._waiting -= len(line) - len(kept)
            if kept:
                self._lines[name] = kept
            else:
                del self._lines[name]
        self._ready = deque(one for one in self._ready if not unwanted(one[1]))

    def _place(self, route: Route, item: T, moves: Moves[T]) -> None:
        full = next((name for name in _names(route) if self._full(name)), None)
        if full is not None:
            self._lines.setdefault(full, deque()).append((route, item))
            self._waiting += 1
        elif self._running >= self._limits.in_flight_max:
            self._ready.append((route, item))
        else:
            self._running += 1
            self._by_name.update(_names(route))
            moves.start.append(item)

    def _refill(self, names: list[_Name]) -> Moves[T]:
        """Give the room that was made to those who wait for it."""
        moves: Moves[T] = Moves()
        for name in names:
            while name in self._lines and not self._full(name):
                self._place(*self._pop(name, first=True), moves)
        while self._ready and self._running < self._limits.in_flight_max:
            self._place(*self._ready.popleft(), moves)
        return self._bounded(moves)

    def _bounded(self, moves: Moves[T]) -> Moves[T]:
        while self._waiting > self._limits.waiting_max:
            moves.park.append(self._drop())
        return moves

    def _pop(self, name: _Name, *, first: bool) -> tuple[Route, T]:
        line = self._lines[name]
        taken = line.popleft() if first else line.pop()
        self._waiting -= 1
        if not line:
            del self._lines[name]
        return taken

    def _drop(self) -> T:
        # There are at most in_flight_max lines: each belongs to a name that is full.
        longest = max(self._lines, key=lambda name: len(self._lines[name]))
        return self._pop(longest, first=False)[1]

    def _full(self, name: _Name) -> bool:
        return self._by_name[name] >= self._bound[name[0]]


def _names(route: Route) -> list[_Name]:
    named = ((_TARGET, route.target), (_TENANT, route.tenant))
    return [(kind, name) for kind, name in named if name]
