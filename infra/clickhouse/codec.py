"""HTTP content codings ClickHouse clients use: gzip, deflate, lz4 (frame) and zstd, as streams."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import lz4.frame  # type: ignore[import-untyped]
from backports import zstd

from infra.clickhouse.errors import ServerError

_PIECE_BYTES = 1 << 20
_GZIP_WBITS = 31
_LEVEL = 3

# The server's own order of preference among what a client accepts.
_PREFERENCE = ("lz4", "zstd", "gzip", "deflate")


class Decoder(Protocol):
    """Takes the encoded body piece by piece; gives back plain pieces of bounded size."""

    def feed(self, data: bytes) -> Iterator[bytes]: ...

    def finish(self) -> None:
        """Raise when the encoded body stopped short."""


class Encoder(Protocol):
    """Encodes a response piece by piece."""

    def encode(self, data: bytes) -> bytes: ...

    def finish(self) -> bytes: ...


def negotiate(accept_encoding: str) -> str | None:
    """The coding to answer with, or None for plain. `q=0` refuses one."""
    accepted = set()
    for item in accept_encoding.lower().split(","):
        name, _, quality = item.partition(";")
        if quality.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}:
            accepted.add(name.strip())
    return next((name for name in _PREFERENCE if name in accepted), None)


def decoder(coding: str) -> Decoder:
    """A decoder for a Content-Encoding header; raises `ServerError` for one we do not speak."""
    match coding.strip().lower():
        case "" | "identity":
            return _Plain()
        case "gzip" | "x-gzip":
            return _Zlib(_GZIP_WBITS)
        case "deflate":
            return _Zlib(zlib.MAX_WBITS)
        case "lz4":
            return _Framed(lz4.frame.LZ4FrameDecompressor)
        case "zstd":
            return _Framed(zstd.ZstdDecompressor)
    raise ServerError(
        415, "UNSUPPORTED_MEDIA_TYPE", f"Unknown Content-Encoding {coding!r}: use gzip, lz4 or zstd"
    )


def encoder(coding: str | None) -> Encoder:
    """An encoder for a coding that `negotiate` returned."""
    match coding:
        case "lz4":
            return _Lz4Encoder()
        case "zstd":
            return _ZstdEncoder()
        case "gzip":
            return _ZlibEncoder(_GZIP_WBITS)
        case "deflate":
            return _ZlibEncoder(zlib.MAX_WBITS)
    return _PlainEncoder()


class _Plain:
    def feed(self, data: bytes) -> Iterator[bytes]:
        yield data

    def finish(self) -> None:
        return


def _short(coding: str) -> ServerError:
    return ServerError(117, "INCORRECT_DATA", f"The {coding} body is cut off or corrupt")


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inner = zlib.decompressobj(wbits)
        self._began = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inner.eof:  # gzip members may follow one another
                self._inner = zlib.decompressobj(self._wbits)
            self._began = True
            try:
                plain = self._inner.decompress(data, _PIECE_BYTES)
            except zlib.error as error:
                raise _short("gzip") from error
            data = self._inner.unconsumed_tail or self._inner.unused_data
            if plain:
                yield plain

    def finish(self) -> None:
        if self._began and not self._inner.eof:
            raise _short("gzip")


class _Framed:
    """lz4 and zstd: `decompress(data, max_length)` with `needs_input`, frame after frame."""

    def __init__(self, make: type[lz4.frame.LZ4FrameDecompressor | zstd.ZstdDecompressor]) -> None:
        self._make = make
        self._inner = make()
        self._began = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data or not (self._inner.needs_input or self._inner.eof):
            if self._inner.eof:
                self._inner = self._make()
            self._began = True
            try:
                plain = self._inner.decompress(data, _PIECE_BYTES)
            except (RuntimeError, EOFError, zstd.ZstdError) as error:
                raise _short("compressed") from error
            data = self._inner.unused_data or b"" if self._inner.eof else b""
            if plain:
                yield plain

    def finish(self) -> None:
        if self._began and not self._inner.eof:
            raise _short("compressed")


class _PlainEncoder:
    def encode(self, data: bytes) -> bytes:
        return data

    def finish(self) -> bytes:
        return b""


class _ZlibEncoder:
    def __init__(self, wbits: int) -> None:
        self._inner = zlib.compressobj(_LEVEL, wbits=wbits)

    def encode(self, data: bytes) -> bytes:
        return self._inner.compress(data)

    def finish(self) -> bytes:
        return self._inner.flush()


class _Lz4Encoder:
    def __init__(self) -> None:
        self._inner = lz4.frame.LZ4FrameCompressor()
        self._header = self._inner.begin()

    def encode(self, data: bytes) -> bytes:
        header, self._header = self._header, b""
        return bytes(header + self._inner.compress(data))

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return bytes(header + self._inner.flush())


class _ZstdEncoder:
    def __init__(self) -> None:
        self._inner = zstd.ZstdCompressor(level=1)

    def encode(self, data: bytes) -> bytes:
        return self._inner.compress(data)

    def finish(self) -> bytes:
        return self._inner.flush()
