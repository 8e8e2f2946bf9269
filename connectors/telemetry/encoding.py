"""Compressed request bodies, decoded within a bound on what comes out.

A few kilobytes can be gigabytes: gzip of zeros is a thousand to one. So the bound is kept *while*
inflating, and for snappy, whose header tells the length, before.
"""

from __future__ import annotations

import zlib

import cramjam

ENCODINGS = ("identity", "gzip", "deflate", "snappy")


class BadEncoding(ValueError):
    """The body is not what its Content-Encoding says."""


class UnknownEncoding(ValueError):
    """A Content-Encoding that is not decoded here."""


class TooLarge(ValueError):
    """The decoded body is larger than is taken."""


def decoded(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body itself. Raises `UnknownEncoding`, `BadEncoding` and `TooLarge`."""
    match encoding.strip().lower() or "identity":
        case "identity":
            found = body
        case "gzip" | "x-gzip":
            found = _inflated(body, 16 + zlib.MAX_WBITS, bytes_max)
        case "deflate":
            found = _inflated(body, zlib.MAX_WBITS, bytes_max)
        case "snappy":
            found = _snappy(body, bytes_max)
        case other:
            raise UnknownEncoding(f"{other[:40]!r} is none of {', '.join(ENCODINGS)}")
    if len(found) > bytes_max:
        raise TooLarge(f"decoded, the body has more than {bytes_max} bytes")
    return found


def _inflated(body: bytes, window_bits: int, bytes_max: int) -> bytes:
    """All members of the stream (RFC 1952 allows several)."""
    parts: list[bytes] = []
    left = bytes_max + 1
    while body and left > 0:
        inflater = zlib.decompressobj(window_bits)
        try:
            part = inflater.decompress(body, left)
        except zlib.error as error:
            raise BadEncoding(f"not the compressed stream it is said to be: {error}") from None
        left -= len(part)
        if left > 0 and not inflater.eof:
            raise BadEncoding("the compressed stream is cut off")
        parts.append(part)
        body = inflater.unused_data
    return b"".join(parts)


def _snappy(body: bytes, bytes_max: int) -> bytes:
    if _declared(body) > bytes_max:
        raise TooLarge(f"decoded, the body has more than {bytes_max} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(body))
    except cramjam.DecompressionError as error:
        raise BadEncoding(f"not a snappy block: {error}") from None


def _declared(body: bytes) -> int:
    """The length that a snappy block says it decodes to: a little-endian varint in front."""
    length = 0
    for shift, byte in enumerate(body[:5]):
        length |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return length
    raise BadEncoding("not a snappy block: no length in front")


def snappy(body: bytes) -> bytes:
    """A snappy block, as Prometheus' remote read is answered."""
    return bytes(cramjam.snappy.compress_raw(body))
