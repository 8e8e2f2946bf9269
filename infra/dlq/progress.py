"""What a redrive remembers of one partition of a dead letter topic, in Kafka itself.

All letters below `low` are done, and those in `beyond`. This is the consumer group's committed
offset and its metadata, so it is shared by everybody who redrives and goes with the topic. Where
the letters that are done lie too scattered for the metadata (a filter that takes every second
one), `commit` refuses and the redrive ends in good order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

METADATA_CHARS_MAX = 3_500
"""Kafka takes 4,096 bytes (`offset.metadata.max.bytes`)."""


class TooScattered(ValueError):
    """What is done cannot be written down in the space there is."""


@dataclass(frozen=True)
class Progress:
    """`beyond` are disjoint ascending ranges `[first, stop)`, all above `low`."""

    low: int
    beyond: tuple[tuple[int, int], ...] = ()

    def __contains__(self, offset: int) -> bool:
        return offset < self.low or any(first <= offset < stop for first, stop in self.beyond)

    def with_done(self, offset: int) -> Progress:
        """This progress with one more letter done."""
        if offset in self:
            return self
        ranges = sorted([*self.beyond, (offset, offset + 1)])
        joined: list[tuple[int, int]] = []
        for first, stop in ranges:
            if joined and joined[-1][1] == first:
                joined[-1] = (joined[-1][0], stop)
            else:
                joined.append((first, stop))
        if joined[0][0] == self.low:
            return Progress(joined[0][1], tuple(joined[1:]))
        return replace(self, beyond=tuple(joined))

    def since(self, start: int) -> Progress:
        """This progress on a log that begins at `start` now: what was cut off is done."""
        kept = tuple((max(first, start), stop) for first, stop in self.beyond if stop > start)
        if self.low >= start:
            return self
        if kept and kept[0][0] == start:
            return Progress(kept[0][1], kept[1:])
        return Progress(start, kept)

    def metadata(self) -> str:
        """`beyond` as text, `5-9,12`. Raises `TooScattered`."""
        text = ",".join(
            str(first) if stop == first + 1 else f"{first}-{stop - 1}"
            for first, stop in self.beyond
        )
        if len(text) > METADATA_CHARS_MAX:
            raise TooScattered(f"{len(self.beyond)} ranges of letters are done beyond {self.low}")
        return text

    @classmethod
    def read(cls, low: int, metadata: str | None) -> Progress:
        """The inverse; raises `ValueError` for metadata that somebody else wrote."""
        ranges = []
        for part in (metadata or "").split(",") if metadata else []:
            first, _, last = part.partition("-")
            ranges.append((int(first), int(last or first) + 1))
        ordered = all(one[1] < two[0] for one, two in pairwise(ranges))
        if not ordered or any(not low < first < stop for first, stop in ranges):
            raise ValueError(f"no progress of a redrive: {metadata!r} beyond {low}")
        return cls(low, tuple(ranges))
