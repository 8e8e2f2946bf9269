"""A worker in small: folds a log of clicks into totals and writes them behind the fence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streams.runtime.position import Position
from streams.runtime.sink import Changes, FenceRefused, Sink, Write
from tests.drivers.model import TOPIC, at, events, no_windows, windows

Key = tuple[int, str]


@dataclass(frozen=True)
class Click:
    """One event: a click for a window, or the window's withdrawal."""

    key: Key
    gone: bool = False


def folded(log: list[Click], end: int) -> dict[Key, int]:
    """Clicks by window after the first `end` events."""
    totals: dict[Key, int] = {}
    for click in log[:end]:
        if click.gone:
            totals.pop(click.key, None)
        else:
            totals[click.key] = totals.get(click.key, 0) + 1
    return totals


def clean(log: list[Click], end: int | None = None, partition: int = 0) -> list[tuple[Any, ...]]:
    """The rows a store has to hold after the log, in the form of `stored`."""
    totals = folded(log, len(log) if end is None else end)
    return sorted(((*key, n, 0, "", partition) for key, n in totals.items()), key=repr)


def fold(log: list[Click], start: int, end: int) -> list[Changes]:
    """The changes of events [start, end): absolute, so the same however the log is cut."""
    totals = folded(log, end)
    touched = dict.fromkeys(click.key for click in log[start:end])
    kept = [(*key, totals[key]) for key in touched if key in totals]
    gone = [key for key in touched if key not in totals]
    return [windows(*kept), no_windows(*gone), events(*range(start, end))]


class Writer:
    """One worker with what it believes is stored."""

    def __init__(self, sink: Sink, log: list[Click], partition: int = 0) -> None:
        self.sink, self.log, self.partition = sink, log, partition
        self.position: Position | None = None
        self.load()

    def load(self) -> None:
        """Go on from what is stored."""
        self.position = self.sink.load(1, TOPIC, self.partition)

    @property
    def next(self) -> int:
        return 0 if self.position is None else self.position.next_offset

    def prepared(self, rows: int) -> Write:
        """The write of the next `rows` events."""
        end = min(self.next + rows, len(self.log))
        changes = fold(self.log, self.next, end)
        return Write(TOPIC, self.partition, self.position, at(end), changes)

    def send(self, write: Write) -> bool:
        """Send it; on a refusal reload. True when it was applied."""
        try:
            self.sink.write(1, write)
        except FenceRefused:
            self.load()
            return False
        self.position = write.position
        return True

    def drain(self, rows: int = 7) -> None:
        """Write until the end of the log."""
        while self.next < len(self.log) or self.position is None:
            self.send(self.prepared(rows))
