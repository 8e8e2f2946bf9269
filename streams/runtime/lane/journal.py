"""Finds the record that kills the process, so that it is quarantined and not fatal for ever.

Before a span is folded its offsets are noted in a small memory-mapped file, and cleared when the
fold is over: what the file holds after the process died abruptly is what it was working on (the
page survives the process, not the machine). On the next start that span is folded record by
record; a record that is there again is quarantined on the third start. Waiting for a store is
never noted, so an outage cannot make a good record look guilty.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import msgspec

_SIZE = 4096


class Suspect(msgspec.Struct, frozen=True):
    """Offsets `[first, stop)` of a partition that were being folded when the process died."""

    topic: str
    partition: int
    first: int
    stop: int

    def overlaps(self, topic: str, partition: int, first: int, stop: int) -> bool:
        """Whether the span shares an offset with this one."""
        same = (topic, partition) == (self.topic, self.partition)
        return same and first < self.stop and self.first < stop

    @property
    def single(self) -> bool:
        """Whether one record alone is suspected: it has killed the process twice."""
        return self.stop - self.first == 1


@dataclass
class Journal:
    """The note of one agent in one process slot."""

    path: Path

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.suspects = self._remembered()
        with self.path.open("wb") as file:
            file.truncate(_SIZE)
        with self.path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _SIZE)

    @property
    def _memory(self) -> Path:
        return self.path.with_suffix(".suspects.json")

    def _remembered(self) -> list[Suspect]:
        """Suspects of earlier starts, narrowed by what the last one was working on."""
        known: list[Suspect] = []
        if self._memory.is_file():
            known = msgspec.json.decode(self._memory.read_bytes(), type=list[Suspect])
        noted = self.path.read_bytes().split(b"\0", 1)[0] if self.path.is_file() else b""
        if noted:
            last = msgspec.json.decode(noted, type=Suspect)
            kept = [
                one
                for one in known
                if not one.overlaps(last.topic, last.partition, last.first, last.stop)
            ]
            # A span that was only ever seen whole is not a verdict on a record of it, even if it
            # holds a single one: it takes a second death, record by record.
            seen = any(
                one.overlaps(last.topic, last.partition, last.first, last.stop) for one in known
            )
            known = [*kept, last if seen or not last.single else _widened(last)]
        self._memory.write_bytes(msgspec.json.encode(known))
        return known

    def working_on(self, topic: str, partition: int, first: int, stop: int) -> None:
        """Note the span that is about to be folded."""
        note = msgspec.json.encode(Suspect(topic, partition, first, stop))
        self._page[: len(note) + 1] = note + b"\0"

    def finished(self) -> None:
        """The fold is over, well or badly, and the process is alive."""
        end = self._page.find(b"\0")
        self._page[:end] = b"\0" * end

    def cleared(self, suspect: Suspect) -> None:
        """A suspected span was folded without harm, or its record is quarantined."""
        self.suspects = [one for one in self.suspects if one != suspect]
        self._memory.write_bytes(msgspec.json.encode(self.suspects))

    def close(self) -> None:
        """Leave no note: the process ends on purpose."""
        self.finished()
        self._page.close()


def _widened(last: Suspect) -> Suspect:
    return Suspect(last.topic, last.partition, last.first, last.stop + 1)
