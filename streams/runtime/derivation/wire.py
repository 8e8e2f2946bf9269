"""What the records of a derived topic carry in their first header (rule B1).

`headrace-source`, 48 bytes: who derived the record from what, which record the same run sent to the
same partition before, and how far event time was in the source. With fixed width the headers of a
whole batch are joined and read as columns.

A heartbeat is a record without key and value whose index is `HEARTBEAT`: nothing more comes from
the source rows up to its offset. It tells the watermark to partitions that got no record (B9).
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

SOURCE = "headrace-source"
HEARTBEAT = 2**31 - 1
"""The index of a heartbeat: after everything that a source row led to."""
NONE = (-1, -1)
"""Offset and index before the first record."""
ID_BYTES = 8

_SOURCE = struct.Struct(">8siiqiqiq")
SOURCE_BYTES = _SOURCE.size
SOURCE_DTYPE = np.dtype(
    [
        ("id", ">u8"),
        ("partition", ">i4"),
        ("partitions", ">i4"),
        ("offset", ">i8"),
        ("index", ">i4"),
        ("prev_offset", ">i8"),
        ("prev_index", ">i4"),
        ("watermark_ms", ">i8"),
    ]
)
"""The source headers of a batch, joined, as a numpy record array."""

Headers = npt.NDArray[Any]
"""One dimension, `SOURCE_DTYPE`."""

_FOREIGN = _SOURCE.pack(b"\0" * ID_BYTES, -1, 0, -1, -1, -1, -1, 0)
"""Stands for a missing header; no source has a negative partition."""


def source_id(agent: str, topic_id: str) -> str:
    """The name of a source in headers: 16 hexadecimal digits. A re-created topic has another."""
    return hashlib.blake2b(f"{agent}\0{topic_id}".encode(), digest_size=ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a derived record comes from.

    - `id`: the deriving agent and the source topic (`source_id`); with its `partition` of
      `partitions`.
    - `offset`, `index`: the source row, and which of the rows that it led to.
    - `prev_offset`, `prev_index`: the same of the record that the run sent to the same partition
      of the target before; `NONE` for its first.
    - `watermark_ms`: the watermark of the source partition just before the source row; of a
      heartbeat, after it.
    """

    id: str
    partition: int
    partitions: int
    offset: int
    index: int
    prev_offset: int
    prev_index: int
    watermark_ms: int

    def pack(self) -> bytes:
        """The 48 bytes of the header."""
        return _SOURCE.pack(
            bytes.fromhex(self.id),
            self.partition,
            self.partitions,
            self.offset,
            self.index,
            self.prev_offset,
            self.prev_index,
            self.watermark_ms,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Source:
        """The inverse of `pack`; raises `struct.error` for another length."""
        first, *rest = _SOURCE.unpack(raw)
        return cls(first.hex(), *rest)


def source_header(headers: Sequence[tuple[str, bytes]] | None) -> bytes | None:
    """The source header of a record, unread; it must be the first one."""
    if not headers or headers[0][0] != SOURCE:
        return None
    return headers[0][1]


def source_of(headers: Sequence[tuple[str, bytes]] | None) -> Source | None:
    """Where one record comes from; None without a whole source header."""
    raw = source_header(headers)
    return None if raw is None or len(raw) != SOURCE_BYTES else Source.unpack(raw)


def columns(headers: Iterable[bytes | None]) -> Headers:
    """Source headers as a record array. None, and a header of another length, is no source's: its
    `partition` is -1.
    """
    whole = [raw if raw is not None and len(raw) == SOURCE_BYTES else _FOREIGN for raw in headers]
    return np.frombuffer(b"".join(whole), SOURCE_DTYPE)
