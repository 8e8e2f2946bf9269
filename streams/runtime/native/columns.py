"""Records of one partition held as columns, in the places where messages are expected.

`Columns` is a sequence of `Message`s that are made one by one when asked for; what is asked for
all records at once comes from the columns. `Values` is the same for record values: a sequence of
bytes for whoever looks, and one block for the decoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import polars as pl
from confluent_kafka import Message

from streams.runtime.native.available import library

Int64s = npt.NDArray[np.int64]
Headers = list[tuple[str, bytes]] | None


class Columns(Sequence[Message]):
    """Records in offset order. Slices share memory; `+=` is cheap, and joins on the next look."""

    __slots__ = ("_parts", "_rows", "partition", "topic")

    def __init__(self, topic: str, partition: int, records: Any) -> None:
        self.topic = topic
        self.partition = partition
        self._parts = [records]
        self._rows = len(records)

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Columns:
        """The same records as columns; there must be one at least."""
        first = messages[0]
        records = library().Records.of([_taken_apart(one) for one in messages])
        return cls(first.topic(), first.partition(), records)

    @property
    def _records(self) -> Any:
        if len(self._parts) > 1:
            self._parts = [self._parts[0].joined(self._parts[1:])]
        return self._parts[0]

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, at: int) -> Message: ...
    @overload
    def __getitem__(self, at: slice) -> Columns: ...
    def __getitem__(self, at: int | slice) -> Message | Columns:
        if isinstance(at, slice):
            start, stop, step = at.indices(self._rows)
            if step != 1:
                return self.picked(range(start, stop, step))
            return Columns(self.topic, self.partition, self._records.part(start, max(start, stop)))
        records, row = self._records, _row(at, self._rows)
        return Message(
            topic=self.topic,
            partition=self.partition,
            offset=records.offset(row),
            key=records.key(row),
            value=records.value(row),
            headers=records.headers(row),
            timestamp=records.timestamp(row),
        )

    def __iadd__(self, more: Sequence[Message]) -> Columns:
        if not isinstance(more, Columns):
            more = Columns.of(more)
        self._parts += more._parts
        self._rows += more._rows
        return self

    def before(self, offset: int) -> int:
        """How many of the records are before `offset`."""
        return int(self._records.before(offset))

    def picked(self, rows: Iterable[int]) -> Columns:
        """Some of the records, by index."""
        return Columns(self.topic, self.partition, self._records.picked(list(rows)))

    def values(self) -> Values:
        """All values."""
        return Values(self._records)

    def keys(self) -> list[bytes | None]:
        """All keys."""
        return list(map(self._records.key, range(self._rows)))

    def headers(self) -> list[Headers]:
        """The headers of each record."""
        return list(map(self._records.headers, range(self._rows)))

    def headers_on_demand(self) -> HeaderLists:
        """The same, made when one is looked at."""
        return HeaderLists(self._records)

    def first_headers(self, name: str) -> list[bytes | None]:
        """The value of the first header of each record; None where it has another name."""
        found: list[bytes | None] = self._records.first_headers(name)
        return found

    def offset(self, row: int) -> int:
        """The offset of one record."""
        return int(self._records.offset(_row(row, self._rows)))

    def offsets(self) -> Int64s:
        """All offsets."""
        return np.frombuffer(self._records.offsets(), np.int64)

    def append_ms(self) -> Int64s:
        """The log's append time of each record (milliseconds)."""
        return np.frombuffer(self._records.stamps(), np.int64)

    def appended_ms(self, row: int) -> int:
        """The log's append time of one record."""
        return int(self._records.timestamp(_row(row, self._rows))[1])


class Values(Sequence[bytes | None]):
    """Record values; `None` is a tombstone."""

    __slots__ = ("_records",)

    def __init__(self, records: Any) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> bytes | None: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes | None]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes | None] | None:
        if isinstance(at, slice):
            return [self._records.value(row) for row in range(*at.indices(len(self)))]
        value: bytes | None = self._records.value(_row(at, len(self)))
        return value

    def __iter__(self) -> Iterator[bytes | None]:
        return map(self._records.value, range(len(self)))

    def frame(self, header: bytes, layout: Any) -> pl.DataFrame | None:
        """The raw columns of a `layout`, one row a value. None unless every value begins with
        `header` and is plainly good; then nothing is known about any of them.
        """
        decoded = self._records.decode(header, layout)
        if decoded is None:
            return None
        struct = pl.from_arrow(decoded)
        return struct.struct.unnest() if isinstance(struct, pl.Series) else None


class HeaderLists(Sequence[Headers]):
    """The headers of records, made when they are looked at."""

    __slots__ = ("_records",)

    def __init__(self, records: Any) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, at: int) -> Headers: ...
    @overload
    def __getitem__(self, at: slice) -> list[Headers]: ...
    def __getitem__(self, at: int | slice) -> Headers | list[Headers]:
        if isinstance(at, slice):
            return [self._records.headers(row) for row in range(*at.indices(len(self)))]
        found: Headers = self._records.headers(_row(at, len(self)))
        return found


def _row(at: int, rows: int) -> int:
    row = at + rows if at < 0 else at
    if not 0 <= row < rows:
        raise IndexError(f"record {at} of {rows}")
    return row


def _taken_apart(message: Message) -> tuple[Any, ...]:
    kind, stamp = message.timestamp()
    headers = message.headers()
    return message.offset(), message.value(), message.key(), kind, stamp, headers
