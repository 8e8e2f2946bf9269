"""Values that are no record of the ads topic, each broken in its own way."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

from tests.chaos.load import Encoder
from tests.chaos.worker import DIES, EXPLODES, PANICS

FAR_MS = 25 * 3_600_000


def _long(number: int) -> bytes:
    """Avro's zigzag varint."""
    number = (number << 1) ^ (number >> 63)
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def row(**more: object) -> dict[str, object]:
    """A good impression."""
    now_ms = int(time.time() * 1000)
    return {
        "impression_id": "poisoned", "user_id": "u", "campaign_id": "c", "ad_id": "a",
        "event_time": now_ms - 60_000, "country": "DE", **more,
    }  # fmt: skip


def broken(encode: Encoder) -> Iterator[tuple[str, bytes]]:
    """`(kind, value)` of everything that must be quarantined before it reaches the fold."""
    good = encode("AdImpressed", row())
    head, body = good[:5], good[5:]
    yield "empty value", b""
    yield "one byte", b"\0"
    yield "header only", head
    yield "half a header", head[:3]
    yield "bad magic byte", b"\1" + good[1:]
    yield "json", b'{"impression_id": "x"}'
    yield "unknown schema id", struct.pack(">bI", 0, 0x7FFF_FFF0) + body
    yield "schema id zero", struct.pack(">bI", 0, 0) + body
    for cut in (1, 8, 20, len(body) - 1):
        yield f"cut at {cut}", head + body[:cut]
    yield "trailing byte", good + b"\0"
    yield "trailing record", good + body
    yield "length 2^62", head + _long(2**62) + body[1:]
    yield "length negative", head + _long(-5) + body[1:]
    yield "length beyond the end", head + _long(1_000) + body[1:]
    yield "varint without end", head + b"\xff" * 12
    yield "text that is not UTF-8", head + _long(3) + b"\xff\xfe\xfd" + body[1 + body[0] // 2 :]
    yield "lone surrogate", head + _long(3) + b"\xed\xa0\xbd" + body[1 + body[0] // 2 :]
    yield "random bytes", head + bytes(range(7, 99))
    yield "zeros", head + bytes(64)
    yield "a day ahead", encode("AdImpressed", row(event_time=int(time.time() * 1000) + FAR_MS))
    yield "year 10000", encode("AdImpressed", row(event_time=253_402_300_800_000))
    yield "time 2^62", encode("AdImpressed", row(event_time=2**62))
    click = {
        "click_id": "k", "impression_id": None, "user_id": "u", "campaign_id": "c", "ad_id": "a",
        "event_time": int(time.time() * 1000) - 60_000, "country": "DE", "cost_micros": 1,
        "user_agent": None,
    }  # fmt: skip
    value = encode("AdClicked", click)
    yield "bad union index", value[:5] + _long(1) + b"k" + _long(7) + value[8:]
    yield "huge and broken", head + bytes(900_000) + b"\xff"


def fatal(encode: Encoder) -> Iterator[tuple[str, bytes]]:
    """Good records that the fold cannot take."""
    yield "fold raises", encode("AdImpressed", row(campaign_id=EXPLODES))
    yield "fold panics", encode("AdImpressed", row(campaign_id=PANICS))


def deadly(encode: Encoder) -> bytes:
    """A good record that ends the process."""
    return encode("AdImpressed", row(campaign_id=DIES))
