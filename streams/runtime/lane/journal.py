"""Finds the record that kills the process, so that it is quarantined and not fatal for ever.

Before records are decoded and folded their offsets are noted in a small memory-mapped file, and
cleared when that is over: what the file holds after the process died abruptly is what it was
working on (the page survives the process, not the machine). Waiting for a store or the registry
is never noted, so an outage cannot make a good record look guilty.

On the next start the suspected records are worked on in pieces, then one by one, so that each
death narrows the suspicion; pieces keep this fast for a large span. A record is guilty when it
has died alone and it is not the first death. A process that was killed from outside (`SIGKILL`)
says nothing about a record, so then a death alone has to repeat: `crashed` tells which it was.

Suspects of several agents in one process are worked on one at a time (`ALONE`), so that the
record of one agent is not blamed for the death that another one caused.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from streams.runtime.lane.span import Span

T = TypeVar("T")

PIECE_ROWS = 256
"""Records worked on at once while a larger span is suspected."""
DEATHS_MAX = 2
ALONE = threading.Lock()
"""Held while suspected records are worked on."""
_SIZE = 4096


class Suspect(msgspec.Struct, frozen=True):
    """Offsets `[first, stop)` of a partition that were worked on when the process died."""

    topic: str
    partition: int
    first: int
    stop: int
    deaths: int = 1

    def overlaps(self, other: Suspect) -> bool:
        """Whether both share an offset."""
        same = (self.topic, self.partition) == (other.topic, other.partition)
        return same and other.first < self.stop and self.first < other.stop

    @property
    def guilty(self) -> bool:
        """Whether it is one record, and it has killed the process often enough."""
        return self.stop - self.first == 1 and self.deaths >= DEATHS_MAX

    @property
    def piece_rows(self) -> int:
        """How many of its records to work on at once."""
        return PIECE_ROWS if self.stop - self.first > PIECE_ROWS else 1


@dataclass
class Journal:
    """The note of one agent in one process slot.

    `crashed` says that the last process is known to have ended itself (a fault, an exit), not to
    have been killed from outside.
    """

    path: Path
    crashed: bool = False

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
        known = _decoded(self._memory, list[Suspect]) or []
        last = _decoded(self.path, Suspect)
        if last is not None:
            around = [one for one in known if one.overlaps(last)]
            again = [
                one
                for one in around
                if self.crashed or (one.first, one.stop) == (last.first, last.stop)
            ]
            deaths = 1 + max((one.deaths for one in again), default=0)
            # A guilty record stays so: it may have to be passed over in another replay.
            kept = [one for one in known if one not in around or one.guilty]
            known = [*kept, msgspec.structs.replace(last, deaths=deaths)]
            self._remember(known)
        return known

    def _remember(self, suspects: list[Suspect]) -> None:
        """Replace the list in one step: half of it would keep the process from starting."""
        draft = self._memory.with_suffix(".tmp")
        draft.write_bytes(msgspec.json.encode(suspects))
        draft.replace(self._memory)

    def suspected(self, span: Span) -> list[Suspect]:
        """The suspects in a span."""
        here = _noted(span)
        return [one for one in self.suspects if one.overlaps(here)]

    def working_on(self, span: Span) -> None:
        """Note the records that are about to be worked on."""
        note = msgspec.json.encode(_noted(span))
        self._page[: len(note) + 1] = note + b"\0"

    def finished(self) -> None:
        """The work is over, well or badly, and the process is alive."""
        end = self._page.find(b"\0")
        self._page[:end] = b"\0" * end

    def passed(self, span: Span, low_offset: int) -> None:
        """The span did no harm. Guilty records are remembered until no replay, which begins at
        `low_offset`, can meet them.
        """
        if not self.suspects:
            return
        kept = [
            one
            for one in self.suspects
            if (one.topic, one.partition) != (span.seat.topic, span.seat.partition)
            or one.stop > (low_offset if one.guilty else span.next_offset)
        ]
        if len(kept) != len(self.suspects):
            self.suspects = kept
            self._remember(kept)

    def close(self) -> None:
        """Leave no note: the process ends on purpose."""
        self.finished()
        self._page.close()


def pieces(span: Span, suspects: Sequence[Suspect]) -> Iterator[tuple[Span, Suspect | None]]:
    """The span cut at the borders of its suspects, and these into pieces to work on at once.

    Of several suspects that hold a record the narrowest decides.
    """
    if not suspects:
        yield span, None
        return
    narrowest = sorted(suspects, key=lambda one: one.stop - one.first)
    offsets = span.offsets().tolist()
    owners = [next((s for s in narrowest if s.first <= at < s.stop), None) for at in offsets]
    start = 0
    while start < len(owners):
        owner, stop = owners[start], start + 1
        most = len(owners) if owner is None else owner.piece_rows
        while stop < len(owners) and owners[stop] is owner and stop - start < most:
            stop += 1
        yield span.part(start, stop), owner
        start = stop


def _noted(span: Span) -> Suspect:
    seat = span.seat
    return Suspect(seat.topic, seat.partition, span.first_offset, span.next_offset)


def _decoded(file: Path, kind: type[T]) -> T | None:
    """What a file says; None when it is missing, empty, or torn by the death it was to tell of."""
    try:
        text = file.read_bytes().split(b"\0", 1)[0]
        return msgspec.json.decode(text, type=kind) if text else None
    except (FileNotFoundError, msgspec.DecodeError):
        return None
