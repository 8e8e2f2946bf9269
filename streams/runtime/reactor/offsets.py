"""Which records of a partition are finished, and what may be committed of that. Pure.

The group's offset is the lowest unfinished one, never more (a hanging call keeps it back). What is
finished beyond it goes into the commit's metadata, with the state of the reader rule at the offset,
so that a restart calls only for what was really in flight.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from streams.runtime.position import FilterState

METADATA_CHARS_MAX = 3_500
"""Kafka takes 4,096 bytes (`offset.metadata.max.bytes`)."""

Range = tuple[int, int]
"""Offsets `[first, stop)`."""


class BadMetadata(ValueError):
    """Metadata of a commit that this module did not write."""


class Offsets:
    """The records of one partition, read in offset order and finished in any.

    `done` are ranges finished before a restart: disjoint, ascending, at or above `start`. `filter`
    is the state of the reader rule after the last record read; set it after each `read`.
    """

    def __init__(
        self, start: int, done: tuple[Range, ...] = (), state: FilterState | None = None
    ) -> None:
        self.next = start
        self.filter = state
        self._done = list(done)
        self._open: OrderedDict[int, FilterState | None] = OrderedDict()

    def read(self, offset: int) -> bool:
        """A record comes in; False when it is finished already (then it is not to be acted on).

        `filter` must still be the state before it. Raises `ValueError` unless offsets ascend.
        """
        if offset < self.next:
            raise ValueError(f"offset {offset} after {self.next - 1}")
        self.next = offset + 1
        while self._done and self._done[0][1] <= offset:
            self._done.pop(0)
        if self._done and self._done[0][0] <= offset:
            return False
        self._open[offset] = self.filter
        return True

    def finish(self, offset: int) -> None:
        """All that was to be done for a record is on the log. `KeyError` for one not open."""
        del self._open[offset]

    @property
    def low(self) -> int:
        """The lowest unfinished offset: what may be committed."""
        return next(iter(self._open), self.next)

    @property
    def unfinished(self) -> int:
        """How many records are."""
        return len(self._open)

    @property
    def filter_low(self) -> FilterState | None:
        """The state of the reader rule just before `low`."""
        return next(iter(self._open.values()), self.filter)

    def done(self) -> Iterator[Range]:
        """Ranges finished at or above `low`; gaps in the log count as finished."""
        spans = [(before + 1, after) for before, after in self._pairs() if before + 1 < after]
        ahead = [(max(first, self.next), stop) for first, stop in self._done if stop > self.next]
        if spans and ahead and spans[-1][1] == ahead[0][0]:
            ahead[0] = (spans.pop()[0], ahead[0][1])
        return iter([*spans, *ahead])

    def _pairs(self) -> Iterator[Range]:
        before = None
        for offset in self._open:
            if before is not None:
                yield before, offset
            before = offset
        if before is not None:
            yield before, self.next


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    topic_id: str
    filter: FilterState | None
    done: str


@dataclass(frozen=True)
class Commit:
    """What is committed of a partition: the offset, and the metadata that goes with it."""

    offset: int
    topic_id: str
    filter: FilterState | None = None
    done: tuple[Range, ...] = ()

    @classmethod
    def of(cls, offsets: Offsets, topic_id: str) -> Commit:
        """The commit that describes this state."""
        return cls(offsets.low, topic_id, offsets.filter_low, tuple(offsets.done()))

    def metadata(self) -> str:
        """As text of at most `METADATA_CHARS_MAX`. Where the finished ranges do not fit, the
        highest are left out: a restart then repeats their calls. Raises `ValueError` where not even
        the reader rule's state fits (a derived topic whose sources have some 80 partitions).
        """
        room = METADATA_CHARS_MAX - len(self._encoded(""))
        if room < 0:
            sources = len(self.filter.sources) if self.filter else 0
            raise ValueError(
                f"the reader rule's state of {sources} source partitions does not fit into a "
                f"commit ({METADATA_CHARS_MAX} characters)"
            )
        parts: list[str] = []
        at = self.offset
        for first, stop in self.done:
            part = f"{first - at}+{stop - first}"
            room -= len(part) + 1
            if room < 0:
                break
            parts.append(part)
            at = stop
        return self._encoded(",".join(parts))

    def _encoded(self, done: str) -> str:
        return msgspec.json.encode(_Stored(self.topic_id, self.filter, done)).decode()

    @classmethod
    def read(cls, offset: int, metadata: str) -> Commit:
        """The inverse; raises `BadMetadata`."""
        try:
            stored = msgspec.json.decode(metadata, type=_Stored)
            done = tuple(_ranges(offset, stored.done))
        except (msgspec.DecodeError, ValueError) as error:
            raise BadMetadata(f"no commit of a reactor: {metadata[:100]!r}") from error
        return cls(offset, stored.topic_id, stored.filter, done)


def _ranges(at: int, text: str) -> Iterator[Range]:
    for part in text.split(",") if text else []:
        gap, length = map(int, part.split("+"))
        if gap < 0 or length <= 0:
            raise ValueError(part)
        yield at + gap, at + gap + length
        at += gap + length
