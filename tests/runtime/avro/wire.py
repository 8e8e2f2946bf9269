"""Schemas, values and topics for the tests of the decoder."""

import io
import json
from collections.abc import Sequence
from typing import Any

import fastavro
import polars as pl

from streams.runtime.topic import RecordType, Topic

CLICK = {
    "type": "record",
    "name": "Click",
    "namespace": "test",
    "fields": [
        {"name": "click_id", "type": "string"},
        {"name": "ad_id", "type": "long"},
        {"name": "campaign_id", "type": "long"},
        {"name": "user_id", "type": "long"},
        {"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "country", "type": "string"},
        {"name": "cost_micros", "type": "long"},
    ],
}

MS = pl.Datetime("ms", "UTC")
CLICK_DTYPES = {
    "click_id": pl.String,
    "ad_id": pl.Int64,
    "campaign_id": pl.Int64,
    "user_id": pl.Int64,
    "event_time": MS,
    "country": pl.String,
    "cost_micros": pl.Int64,
}


def click(i: int) -> dict[str, Any]:
    return {
        "click_id": f"{i * 7919:032x}",
        "ad_id": i % 10_000,
        "campaign_id": i % 1_000,
        "user_id": i * 1_000_003 % (1 << 40),
        "event_time": 1_790_000_000_000 + i,
        "country": "US",
        "cost_micros": i * 37 % 1_000_000,
    }


def record_schema(*fields: dict[str, Any], name: str = "test.R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def record_type(schema: dict[str, Any], dtypes: dict[str, Any]) -> RecordType:
    space = schema.get("namespace")
    name = f"{space}.{schema['name']}" if space else schema["name"]
    return RecordType(name, json.dumps(schema), dtypes, dict)


def topic(*records: RecordType) -> Topic:
    return Topic("clicks", records, "user_id", "event_time", 4, "tests", "")


def varint(number: int) -> bytes:
    """Any integer as Avro would write it, also where it would not."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def framed(body: bytes, schema_id: int = 1) -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + body


def encode(schema: Any, *rows: Any, schema_id: int = 1) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    out = []
    for row in rows:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, parsed, row)
        out.append(framed(sink.getvalue(), schema_id))
    return out


def clicks(count: int) -> list[bytes]:
    return encode(CLICK, *map(click, range(count)))


def rows_of(frame: pl.DataFrame, names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows with timestamps as milliseconds."""
    plain = frame.with_columns(pl.col(MS).to_physical()) if MS in frame.dtypes else frame
    return plain.select(names or pl.all()).to_dicts()
