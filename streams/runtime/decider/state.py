"""State of one partition in memory: tables and timers whose last changes can be taken back.

A decider decides ahead of the log: on the state after decisions that it has not read back yet.
Each decision's changes are kept as undo steps until it is read back, so there is one state and not
two. To give up what is ahead, the steps are undone newest first; a snapshot copies the tables and
undoes them in the copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import msgspec

from streams.runtime.decider.rules import Timer

Rows = dict[Any, Any]
Step = tuple[Rows, Any, Any]
"""A table, a key, and what the table held there; `ABSENT` for nothing."""
Steps = list[Step]

ABSENT: Final[Any] = type("Absent", (), {"__slots__": ()})()
_SLACK = 64
_NEVER_MS = 2**63 - 1


class Image(msgspec.Struct, frozen=True):
    """A copy of all of a state, detached from it."""

    tables: Mapping[str, Rows]
    timers: Mapping[str, int]

    def digest(self) -> str:
        """The same for equal contents, in whatever order they were written."""
        total = 0
        for name, rows in {**self.tables, "": dict(self.timers)}.items():
            for item in rows.items():
                raw = name.encode() + b"\0" + msgspec.msgpack.encode(item, order="sorted")
                total += int.from_bytes(blake2b(raw, digest_size=16).digest())
        return f"{total % 2**128:032x}"


class MemoryTable:
    """A `Table` over a dictionary; every change leaves an undo step."""

    __slots__ = ("_rows", "_undo", "get")

    def __init__(self, rows: Rows, undo: Undo) -> None:
        self._rows = rows
        self._undo = undo
        self.get = rows.get

    def __getitem__(self, key: Any) -> Any:
        return self._rows[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __setitem__(self, key: Any, value: Any) -> None:
        rows = self._rows
        self._undo.steps.append((rows, key, rows.get(key, ABSENT)))
        rows[key] = value

    def __delitem__(self, key: Any) -> None:
        self._undo.steps.append((self._rows, key, self._rows.pop(key)))

    def items(self) -> Iterator[tuple[Any, Any]]:
        return iter(self._rows.items())


class Undo:
    """Where changes leave their steps; `steps` is replaced for each decision."""

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: Steps = []


class PartitionState:
    """A `State`: tables by name, and timers."""

    def __init__(self, image: Image) -> None:
        self.undo = Undo()
        self._rows = {name: dict(rows) for name, rows in image.tables.items()}
        self._tables = {name: MemoryTable(rows, self.undo) for name, rows in self._rows.items()}
        self._timers: Rows = dict(image.timers)
        self.heap = [(time_ms, name) for name, time_ms in image.timers.items()]
        """Times and names; the first may be outdated, but no timer is due before it."""
        heapq.heapify(self.heap)

    def __getitem__(self, table: str) -> MemoryTable:
        return self._tables[table]

    def rows(self, table: str) -> Rows:
        """The dictionary behind a table; for the runtime's own tables."""
        return self._rows[table]

    def schedule(self, name: str, time_ms: int) -> None:
        self.undo.steps.append((self._timers, name, self._timers.get(name, ABSENT)))
        self._timers[name] = time_ms
        self._push(time_ms, name)

    def cancel(self, name: str) -> None:
        before = self._timers.pop(name, ABSENT)
        if before is not ABSENT:
            self.undo.steps.append((self._timers, name, before))

    def due(self, time_ms: int) -> Timer | None:
        """The earliest timer set to that time or before."""
        heap, timers = self.heap, self._timers
        while heap and heap[0][0] <= time_ms:
            at, name = heap[0]
            if timers.get(name) == at:
                return Timer(name, at)
            heapq.heappop(heap)  # it was cancelled or set again
        return None

    @property
    def next_due_ms(self) -> int | None:
        """The time of the earliest timer; None without timers."""
        first = self.due(_NEVER_MS)
        return None if first is None else first.time_ms

    def begin(self) -> Steps:
        """Changes from here on leave their steps in the list returned."""
        steps: Steps = []
        self.undo.steps = steps
        return steps

    def settle(self) -> None:
        """Forget the steps of the current decision: it is not to be taken back."""
        self.undo.steps.clear()

    def roll_back(self, newest_first: Iterable[Steps]) -> None:
        """Undo the changes of these decisions."""
        for steps in newest_first:
            for rows, key, before in reversed(steps):
                _put_back(rows, key, before)
                if rows is self._timers and before is not ABSENT:
                    self._push(before, key)  # its entry may have been dropped as outdated
            steps.clear()

    def image(self, newest_first: Iterable[Sequence[Step]] = ()) -> Image:
        """A copy without the changes of these decisions."""
        originals = [*self._rows.values(), self._timers]
        copies = {id(rows): rows.copy() for rows in originals}
        for steps in newest_first:
            for rows, key, before in reversed(steps):
                _put_back(copies[id(rows)], key, before)
        tables = {name: copies[id(rows)] for name, rows in self._rows.items()}
        return Image(tables, copies[id(self._timers)])

    def _push(self, time_ms: int, name: str) -> None:
        heapq.heappush(self.heap, (time_ms, name))
        if len(self.heap) > 2 * len(self._timers) + _SLACK:
            self.heap = [(at, timer) for timer, at in self._timers.items()]
            heapq.heapify(self.heap)


def _put_back(rows: Rows, key: Any, before: Any) -> None:
    if before is ABSENT:
        rows.pop(key, None)
    else:
        rows[key] = before
