"""What a frame of the spool holds: lines as they were read, and how far that is."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from connectors.telemetry.tail.follow import Cursor


class Held(msgspec.Struct, frozen=True):
    """Lines of one file, `(byte, text)`, as they were written, so that parsers and rules may
    change while they wait; `cursors` is one, behind them. Or no lines, and how far every file was
    read by then: the first frame of each segment, since the segments before may be deleted.
    """

    service: str
    path: str
    read_ns: int
    lines: Sequence[tuple[int, bytes]]
    cursors: Sequence[Cursor]


def encode(held: Held) -> bytes:
    """The payload of a frame."""
    return msgspec.msgpack.encode(held)


def decode(payload: bytes) -> Held:
    """The inverse; raises `msgspec.DecodeError`."""
    return msgspec.msgpack.decode(payload, type=Held)


def line_ids(host: str, held: Held) -> list[str]:
    """Ids of the frame's lines: host, file and place, so they are the same after a crash."""
    if not held.lines:
        return []
    file = f"{host}\0{held.cursors[0].identity}\0"
    return [
        hashlib.blake2b(f"{file}{at}".encode(), digest_size=16).hexdigest() for at, _ in held.lines
    ]
