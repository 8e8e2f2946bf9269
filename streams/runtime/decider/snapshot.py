"""Snapshots: a state with all that is needed to go on from it, in bounded chunks.

The file is a row of sections, each with its length before it: first the `Heading`, then compressed
chunks of at most `CHUNK_ROWS` rows, then a digest over all before it. A torn, cut or foreign file
is `BadSnapshot`, never a state.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any

import lz4.frame  # type: ignore[import-untyped]
import msgspec

from streams.runtime.decider.folded import CLOCK, KEYS, Known
from streams.runtime.decider.ports import Last
from streams.runtime.decider.state import Image
from streams.runtime.position import FilterState

FORMAT = "headrace-snapshot-1"
CHUNK_ROWS = 10_000
_LENGTH = struct.Struct(">I")
_DIGEST_BYTES = 32
_TIMERS = "headrace:timers"
_KEY = str | int | tuple[str | int | tuple[str | int, ...], ...]


class BadSnapshot(ValueError):
    """Not a snapshot that this program can go on from; another one, or the log, has to do."""


class Identity(msgspec.Struct, frozen=True):
    """A record of the event log, to be found again: its offset and a checksum of what it holds."""

    offset: int
    checksum: int

    @classmethod
    def of(cls, last: Last) -> Identity:
        """That of a record."""
        checksum = zlib.crc32(last.value or b"")
        for name, value in last.headers or ():
            checksum = zlib.crc32(value or b"", zlib.crc32(name.encode(), checksum))
        return cls(last.offset, checksum)


class Heading(msgspec.Struct, frozen=True):
    """What a snapshot is of, and where the log goes on behind it (A3, A11)."""

    format: str
    decider: str
    partition: int
    rules_version: int
    next_offset: int
    filter: FilterState
    last: Identity
    commands_topic_id: str
    events_topic_id: str


class Snapshot(msgspec.Struct, frozen=True):
    """A heading and its state."""

    heading: Heading
    image: Image


def write(heading: Heading, image: Image) -> Iterator[bytes]:
    """The sections of the file. An iterator, so that other threads get their turn in between."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    encoder = msgspec.msgpack.Encoder()
    tables = {**image.tables, _TIMERS: image.timers}
    for body in _bodies(heading, tables, encoder):
        section = _LENGTH.pack(len(body)) + body
        digest.update(section)
        yield section
    yield _LENGTH.pack(0) + digest.digest()


def _bodies(
    heading: Heading, tables: Mapping[str, Mapping[Any, Any]], encoder: msgspec.msgpack.Encoder
) -> Iterator[bytes]:
    yield encoder.encode(heading)
    for name, rows in tables.items():
        for chunk in _chunks(rows.items()):
            yield lz4.frame.compress(encoder.encode((name, chunk)))


def _chunks(items: Iterable[tuple[Any, Any]]) -> Iterator[list[tuple[Any, Any]]]:
    chunk: list[tuple[Any, Any]] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == CHUNK_ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def read(sections: Iterable[bytes], types: Mapping[str, Any]) -> Snapshot:
    """The snapshot of a file's bytes, however cut; `types` are those of the tables' values.

    Raises `BadSnapshot`.
    """
    try:
        return _read(_framed(sections), types)
    except (msgspec.MsgspecError, RuntimeError, KeyError, StopIteration) as error:
        raise BadSnapshot(f"not a snapshot: {type(error).__name__}: {error}") from error


def heading_of(sections: Iterable[bytes]) -> Heading:
    """Only the heading. Raises `BadSnapshot`."""
    try:
        return msgspec.msgpack.decode(next(_framed(sections)), type=Heading)
    except (msgspec.MsgspecError, StopIteration) as error:
        raise BadSnapshot(f"not a snapshot: {error}") from error


def _read(bodies: Iterator[bytes], types: Mapping[str, Any]) -> Snapshot:
    heading = msgspec.msgpack.decode(next(bodies), type=Heading)
    if heading.format != FORMAT:
        raise BadSnapshot(f"format {heading.format}, not {FORMAT}")
    kinds = {**types, KEYS: Known, CLOCK: int, _TIMERS: int}
    tables: dict[str, dict[Any, Any]] = {name: {} for name in kinds}
    decoders = {
        name: msgspec.msgpack.Decoder(list[tuple[_KEY, kind]])  # type: ignore[valid-type]
        for name, kind in kinds.items()
    }
    outer = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
    for body in bodies:
        name, rows = outer.decode(lz4.frame.decompress(body))
        tables[name].update(decoders[name].decode(rows))
    timers = tables.pop(_TIMERS)
    return Snapshot(heading, Image(tables, timers))


def _framed(sections: Iterable[bytes]) -> Iterator[bytes]:
    """The bodies of the sections; raises `BadSnapshot` unless the digest at the end is theirs."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    pieces = _Pieces(sections)
    while True:
        length = pieces.take(_LENGTH.size)
        (size,) = _LENGTH.unpack(length)
        if size == 0:
            if pieces.take(_DIGEST_BYTES) != digest.digest():
                raise BadSnapshot("the digest is another one")
            return
        body = pieces.take(size)
        digest.update(length)
        digest.update(body)
        yield body


class _Pieces:
    """Takes so many bytes from pieces of any size."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._held = bytearray()

    def take(self, size: int) -> bytes:
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                raise BadSnapshot("the file ends early")
            self._held += piece
        taken = bytes(self._held[:size])
        del self._held[:size]
        return taken
