"""What the HTTP layer knows of output formats: content type, and how pieces of a result join."""

from __future__ import annotations

import struct
from typing import Protocol

_BINARY = "application/octet-stream"
_CONTENT_TYPES = {
    "tabseparated": "text/tab-separated-values; charset=UTF-8",
    "tsv": "text/tab-separated-values; charset=UTF-8",
    "csv": "text/csv; charset=UTF-8; header=absent",
    "csvwithnames": "text/csv; charset=UTF-8; header=present",
    "json": "application/json; charset=UTF-8",
    "jsoncompact": "application/json; charset=UTF-8",
    "jsoneachrow": "application/x-ndjson; charset=UTF-8",
    "native": _BINARY,
    "arrow": _BINARY,
    "arrowstream": "application/vnd.apache.arrow.stream",
    "avro": _BINARY,
    "orc": _BINARY,
    "parquet": _BINARY,
    "rowbinary": _BINARY,
}

# The engine encodes each block of a streamed result as a whole of its own. These formats have no
# header, footer or separator, so wholes one behind another are one larger whole.
_CONCATENATED = frozenset(
    name.lower()
    for name in (
        "Native", "TabSeparated", "TSV", "TabSeparatedRaw", "TSVRaw", "CSV", "TSKV", "RowBinary",
        "JSONEachRow", "JSONLines", "NDJSON", "JSONCompactEachRow", "JSONStringsEachRow",
        "LineAsString", "RawBLOB",
    )
)  # fmt: skip

# Arrow IPC: a message is a continuation mark, a length and that many bytes; length 0 ends a stream.
_ARROW_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_ARROW_PREFIX_BYTES = 8


class Joiner(Protocol):
    """Makes one result out of the pieces the engine gives, in order."""

    def join(self, piece: bytes) -> bytes: ...

    def end(self) -> bytes: ...


def content_type(fmt: str | None) -> str:
    """The `Content-Type` of a result."""
    return _CONTENT_TYPES.get((fmt or "").lower(), "text/plain; charset=UTF-8")


def joiner(fmt: str) -> Joiner | None:
    """How to send a result in pieces, in bounded memory; None for formats that cannot be."""
    name = fmt.lower()
    if name == "arrowstream":
        return _ArrowStream()
    return _Concatenated() if name in _CONCATENATED else None


class _Concatenated:
    def join(self, piece: bytes) -> bytes:
        return piece

    def end(self) -> bytes:
        return b""


class _ArrowStream:
    """Keeps the schema of the first piece and the batches of all (Arrow IPC streaming format)."""

    def __init__(self) -> None:
        self._began = False

    def join(self, piece: bytes) -> bytes:
        (schema_bytes,) = struct.unpack_from("<i", piece, 4)
        start = _ARROW_PREFIX_BYTES + schema_bytes if self._began else 0
        self._began = True
        return piece[start:].removesuffix(_ARROW_END)

    def end(self) -> bytes:
        return _ARROW_END
