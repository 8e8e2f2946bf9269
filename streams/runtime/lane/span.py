"""Spans: raw records of one partition on their way from the reader to the pump."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from confluent_kafka import Message

from streams.runtime.native.columns import Columns

_OFFSET, _VALUE, _TIMESTAMP = Message.offset, Message.value, Message.timestamp
_HEADERS, _KEY = Message.headers, Message.key

Headers = list[tuple[str, bytes]] | None
"""What a record carries beside key and value, in order."""


@dataclass(eq=False)
class Seat:
    """One assignment of one partition to this reader, from assign to revoke or reset.

    `revoked` ends it: whatever still carries this seat is dropped unprocessed (a buffer kept
    across a revoke and re-assign would be stored and committed by the wrong owner).
    """

    topic: str
    partition: int
    revoked: bool = False
    memory: Any = None
    """The pump's fold state and position; lives and dies with the seat."""

    @property
    def name(self) -> str:
        """`topic/partition`, as messages name it."""
        return f"{self.topic}/{self.partition}"


@dataclass
class Span:
    """Consecutive records of one partition, in offset order; never empty.

    `messages` is a list, or `Columns`, which know what is asked of all records at once.
    `idle` spans have no records: they tell the pump that the partition has been silent.
    `begins` is where the span before ended (or where the seat was told to start): offsets may
    have gaps, so only this shows that no span was lost on the way. None: not known.
    """

    seat: Seat
    messages: Sequence[Message] = field(default_factory=list)
    idle: bool = False
    begins: int | None = None

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def first_offset(self) -> int:
        return offset_of(self.messages, 0)

    @property
    def next_offset(self) -> int:
        """One past the last record; gaps after it belong to the next span."""
        return offset_of(self.messages, -1) + 1

    def values(self) -> Sequence[bytes | None]:
        """The record values, untouched."""
        if isinstance(self.messages, Columns):
            return self.messages.values()
        return list(map(_VALUE, self.messages))

    def keys(self) -> list[bytes | None]:
        """The record keys."""
        if isinstance(self.messages, Columns):
            return self.messages.keys()
        return list(map(_KEY, self.messages))

    def headers(self) -> list[Headers]:
        """The headers of each record."""
        if isinstance(self.messages, Columns):
            return self.messages.headers()
        return list(map(_HEADERS, self.messages))

    def some_headers(self, limit: int) -> Iterator[Headers]:
        """The headers of the first records; none is read before it is asked for."""
        if isinstance(self.messages, Columns):
            yield from self.messages[:limit].headers()
        else:
            yield from map(_HEADERS, self.messages[:limit])

    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The record offsets. Without gaps they need no call per record: offsets strictly
        increase, so first, last and count decide.
        """
        first, after, count = self.first_offset, self.next_offset, len(self.messages)
        if after - first == count:
            return np.arange(first, after, dtype=np.int64)
        if isinstance(self.messages, Columns):
            return self.messages.offsets()
        return np.fromiter(map(_OFFSET, self.messages), np.int64, count)

    def append_ms(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The log's append time of each record (milliseconds)."""
        if isinstance(self.messages, Columns):
            return self.messages.append_ms()
        stamps = map(_TIMESTAMP, self.messages)
        return np.fromiter((stamp for _, stamp in stamps), np.int64, len(self.messages))

    @property
    def first_append_ms(self) -> int:
        return appended_ms(self.messages, 0)

    @property
    def last_append_ms(self) -> int:
        return appended_ms(self.messages, -1)

    def halves(self) -> tuple[Span, Span]:
        """The span cut in two; it must have at least two records."""
        middle = len(self.messages) // 2
        return self.part(0, middle), self.part(middle, len(self.messages))

    def part(self, start: int, stop: int) -> Span:
        """Some of the records, by index."""
        return Span(self.seat, self.messages[start:stop])

    def values_at(self, rows: Sequence[int]) -> Sequence[bytes | None]:
        """The values of some of the records, by index."""
        if isinstance(self.messages, Columns):
            return self.messages.picked(rows).values()
        return [_VALUE(self.messages[row]) for row in rows]


def offset_of(messages: Sequence[Message], row: int) -> int:
    """The offset of one record."""
    if isinstance(messages, Columns):
        return messages.offset(row)
    return int(_OFFSET(messages[row]))


def appended_ms(messages: Sequence[Message], row: int) -> int:
    """The log's append time of one record (milliseconds)."""
    if isinstance(messages, Columns):
        return messages.appended_ms(row)
    return int(_TIMESTAMP(messages[row])[1])


def since(messages: Sequence[Message], offset: int) -> Sequence[Message]:
    """The records at `offset` and after it."""
    return messages[before(messages, offset) :]


def before(messages: Sequence[Message], offset: int) -> int:
    """How many of the records are before `offset`."""
    if isinstance(messages, Columns):
        return messages.before(offset)
    return bisect_left(messages, offset, key=_OFFSET)
