"""Named poison: each pill is dead with its reason, each neighbour is kept, in bounded time."""

import struct
from typing import Any

import polars as pl
import pytest

from streams.runtime.avro import Decoder, MemorySource
from tests.runtime.avro.wire import (
    MS,
    encode,
    framed,
    record_schema,
    record_type,
    rows_of,
    topic,
    varint,
)

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NULLS = {"type": "array", "items": "null"}
LONGS = {"type": "array", "items": "long"}
NEST: dict[str, Any] = {
    "type": "record",
    "name": "Nest",
    "fields": [{"name": "next", "type": ["null", "Nest"]}],
}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
CLOCK = {"type": "int", "logicalType": "time-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
UNIT = {"type": "fixed", "name": "F", "size": 4}
CARD = {"type": "record", "name": "Card", "fields": [{"name": "id", "type": "string"}]}
BANK = {"type": "record", "name": "Bank", "fields": [{"name": "id", "type": "string"}]}
US = pl.Datetime("us", "UTC")
NAN = struct.pack("<d", float("nan"))
BEYOND = b"\xff" * 10 + b"\x01"

V = varint
# name, Avro type, dtype, bytes of the field, reason
PILLS: list[tuple[str, Any, Any, bytes, str]] = [
    ("string of 2^62 bytes", "string", pl.String, V(2**62) + b"ab", "body ends early"),
    ("string of 2^63-1 bytes", "string", pl.String, V(2**63 - 1) + b"ab", "body ends early"),
    ("string of -1 bytes", "string", pl.String, V(-1) + b"ab", "field x: a negative length"),
    ("string of -2^63 bytes", "string", pl.String, V(-(2**63)), "field x: a negative length"),
    ("string one too short", "string", pl.String, V(3) + b"ab", "body ends early"),
    ("string one too long", "string", pl.String, V(1) + b"ab", "1 bytes after the record"),
    ("not UTF-8", "string", pl.String, V(2) + b"\xff\xfe", "field x: not UTF-8"),
    ("lone surrogate", "string", pl.String, V(3) + b"\xed\xa0\xbd", "field x: not UTF-8"),
    ("overlong UTF-8", "string", pl.String, V(2) + b"\xc0\x80", "field x: not UTF-8"),
    ("UTF-8 cut in a character", "string", pl.String, V(1) + b"\xc3", "field x: not UTF-8"),
    ("bytes of 2^62", "bytes", pl.Binary, V(2**62), "body ends early"),
    ("bytes of -2", "bytes", pl.Binary, V(-2) + b"ab", "field x: a negative length"),
    ("int 2^31", "int", pl.Int32, V(2**31), "field x: out of range"),
    ("int -2^31-1", "int", pl.Int32, V(-(2**31) - 1), "field x: out of range"),
    ("int 2^40", "int", pl.Int32, V(2**40), "field x: out of range"),
    ("int of 2^32 that wraps to 0", "int", pl.Int32, V(2**32), "field x: out of range"),
    ("long of 11 bytes", "long", pl.Int64, BEYOND, "field x: an integer of more than 10 bytes"),
    ("long without end", "long", pl.Int64, b"\x80", "body ends early"),
    ("boolean 2", "boolean", pl.Boolean, b"\x02", "field x: a boolean that is neither 0 nor 1"),
    ("boolean 255", "boolean", pl.Boolean, b"\xff", "field x: a boolean that is neither 0 nor 1"),
    ("float of 3 bytes", "float", pl.Float32, b"abc", "body ends early"),
    ("double of 7 bytes", "double", pl.Float64, b"abcdefg", "body ends early"),
    ("fixed of 3 bytes", UNIT, pl.Binary, b"abc", "body ends early"),
    ("fixed of 5 bytes", UNIT, pl.Binary, b"abcde", "1 bytes after the record"),
    ("enum 2 of 2", ENUM, pl.String, V(2), "field x: not a symbol"),
    ("enum -1", ENUM, pl.String, V(-1), "field x: not a symbol"),
    ("enum 2^32", ENUM, pl.String, V(2**32), "field x: not a symbol"),
    (
        "branch 2 of 2",
        ["null", "long"],
        pl.Int64,
        V(2) + V(7),
        "field x: not a branch of the union",
    ),
    ("branch -1", ["null", "long"], pl.Int64, V(-1) + V(7), "field x: not a branch of the union"),
    ("branch 2^40", ["null", "long"], pl.Int64, V(2**40), "field x: not a branch of the union"),
    ("branch 2, null last", ["long", "null"], pl.Int64, V(2), "field x: not a branch of the union"),
    ("branch of three", ["null", "long", "string"], pl.Object, V(3), "field x: not a branch"),
    ("negative branch of three", ["null", "long", "string"], pl.Object, V(-1), "field x: not a b"),
    ("nullable enum -1", ["null", ENUM], pl.String, V(1) + V(-1), "field x: not a symbol"),
    ("time 253402300800000", TIME, MS, V(253402300800000), "field x: out of range"),
    ("time -62135596800001", TIME, MS, V(-62135596800001), "field x: out of range"),
    ("microseconds as milliseconds", TIME, MS, V(1_790_000_000_000_000), "field x: out of range"),
    ("time 10^15", TIME, MS, V(10**15), "field x: out of range"),
    ("time 2^62", TIME, MS, V(2**62), "field x: out of range"),
    ("time -2^63", TIME, MS, V(-(2**63)), "field x: out of range"),
    ("nullable time 2^62", ["null", TIME], MS, V(1) + V(2**62), "field x: out of range"),
    ("micros 2^62", MICROS, US, V(2**62), "field x: out of range"),
    ("clock 24:00", CLOCK, pl.Time, V(86_400_000), "field x: out of range"),
    ("clock -1", CLOCK, pl.Time, V(-1), "field x: out of range"),
    ("date 2^31-1", {"type": "int", "logicalType": "date"}, pl.Date, V(2**31 - 1), "field x: out"),
    ("array of 2^62", LONGS, pl.List(pl.Int64), V(2**62) + V(1), "body ends early"),
    ("array of -2^63", LONGS, pl.List(pl.Int64), V(-(2**63)) + V(0), "body ends early"),
    ("array without end", LONGS, pl.List(pl.Int64), V(1) + V(1), "body ends early"),
    ("3,000,000 nulls in five bytes", NULLS, pl.Object, bytes.fromhex("809bee0200"), "field x: mo"),
    ("2^62 nulls", NULLS, pl.Object, V(2**62) + V(0), "field x: more than 10000 empty items"),
    ("negative block of 2^62 nulls", NULLS, pl.Object, V(-(2**62)) + V(0) * 2, "field x: more th"),
    ("map of 2^62", {"type": "map", "values": "null"}, pl.Object, V(2**62), "body ends early"),
    ("nested 5,000 deep", NEST, pl.Object, V(1) * 5_000 + V(0), "nested deeper than 64"),
    ("nested 200,000 deep", NEST, pl.Object, V(1) * 200_000 + V(0), "nested deeper than 64"),
    ("nested without end", ["null", NEST], pl.Object, V(1) * 20, "body ends early"),
    ("record branch 7", [CARD, BANK], pl.Object, V(7) + V(1) + b"a", "field x: not a branch"),
    (
        "ten megabytes too many",
        "string",
        pl.String,
        V(1) + b"a" * 10_000_000,
        "9999999 bytes after",
    ),
    ("empty body", "long", pl.Int64, b"", "body ends early"),
]
GOOD_X = {
    "string": "ok",
    "bytes": b"ok",
    "int": 1,
    "long": 1,
    "boolean": True,
    "float": 0.5,
    "double": 0.5,
    "fixed": b"good",
    "enum": "B",
    "array": [],
    "map": {},
    "record": {"next": None},
}


def good_value(t: Any) -> Any:
    if isinstance(t, list):
        return None if "null" in t else {"id": "x"}
    return GOOD_X[t if isinstance(t, str) else t["type"]]


@pytest.mark.parametrize(
    ("avro", "dtype", "pill", "reason"),
    [pytest.param(*rest, id=name) for name, *rest in PILLS],
)
def test_pill(avro: Any, dtype: Any, pill: bytes, reason: str) -> None:
    schema = record_schema({"name": "i", "type": "long"}, {"name": "x", "type": avro})
    record = record_type(schema, {"i": pl.Int64, "x": dtype})
    values = encode(schema, *({"i": i, "x": good_value(avro)} for i in range(101)))
    values[50] = framed(varint(50) + pill)
    decoded = Decoder(topic(record), MemorySource({1: schema})).decode(values)
    assert [d.row for d in decoded.dead] == [50]
    assert decoded.dead[0].reason.startswith(reason)
    kept = decoded.frames["test.R"]["i"].to_list()
    assert kept == [i for i in range(101) if i != 50]


def test_all_pills_of_one_type_at_once_one_in_a_hundred() -> None:
    schema = record_schema({"name": "i", "type": "long"}, {"name": "x", "type": "string"})
    record = record_type(schema, {"i": pl.Int64, "x": pl.String})
    pills = [pill for _, avro, _, pill, _ in PILLS if avro == "string" and len(pill) < 100]
    count = 100 * len(pills)
    values = encode(schema, *({"i": i, "x": "ok"} for i in range(count)))
    for k, pill in enumerate(pills):
        values[100 * k + 7] = framed(varint(7) + pill)
    decoded = Decoder(topic(record), MemorySource({1: schema})).decode(values)
    assert [d.row for d in decoded.dead] == [100 * k + 7 for k in range(len(pills))]
    assert decoded.frames["test.R"].height == count - len(pills)


def test_mostly_bad() -> None:
    schema = record_schema({"name": "i", "type": "long"}, {"name": "x", "type": "string"})
    record = record_type(schema, {"i": pl.Int64, "x": pl.String})
    values = encode(schema, *({"i": i, "x": "ok"} for i in range(2_000)))
    values = [v if i % 3 else v[:-1] for i, v in enumerate(values)]
    decoded = Decoder(topic(record), MemorySource({1: schema})).decode(values)
    assert [d.row for d in decoded.dead] == list(range(0, 2_000, 3))
    assert decoded.frames["test.R"]["i"].to_list() == [i for i in range(2_000) if i % 3]


@pytest.mark.parametrize("place", range(0, 64, 7))
@pytest.mark.parametrize("header", [b"\x01\0\0\0\1", b"\0\0\0\0\2", b"\0\1\0\0\1", b"\0\0"])
def test_one_wrong_header_anywhere(place: int, header: bytes) -> None:
    schema = record_schema({"name": "i", "type": "long"})
    record = record_type(schema, {"i": pl.Int64})
    values = encode(schema, *({"i": i} for i in range(64)))
    values[place] = header + values[place][5:]
    decoded = Decoder(topic(record), MemorySource({1: schema})).decode(values)
    assert [d.row for d in decoded.dead] == [place]
    assert decoded.frames["test.R"].height == 63


def test_what_looks_odd_but_is_allowed() -> None:
    schema = record_schema(
        {"name": "n", "type": "double"},
        {"name": "big", "type": "long"},
        {"name": "at", "type": TIME},
        {"name": "text", "type": "string"},
    )
    dtypes = {"n": pl.Float64, "big": pl.Int64, "at": MS, "text": pl.String}
    rows = [
        {"n": float("inf"), "big": -(2**63), "at": -62_135_596_800_000, "text": ""},
        {"n": -0.0, "big": 2**63 - 1, "at": 253_402_300_799_999, "text": "\x00\U0010ffff"},
    ]
    values = [
        *encode(schema, *rows),
        framed(NAN + b"\x80\x00" + varint(1) + varint(1) + b"a"),  # a padded zero
    ]
    decoded = Decoder(topic(record_type(schema, dtypes)), MemorySource({1: schema})).decode(values)
    assert not decoded.dead
    out = rows_of(decoded.frames["test.R"].drop("_row"))
    assert out[:2] == rows
    assert out[2]["n"] != out[2]["n"] and out[2]["big"] == 0


def test_a_record_type_the_topic_does_not_declare() -> None:
    schema = record_schema({"name": "i", "type": "long"})
    other = record_schema({"name": "i", "type": "long"}, name="x.Y")
    values = [*encode(schema, {"i": 1}), *encode(other, {"i": 2}, schema_id=2)]
    source = MemorySource({1: schema, 2: other})
    decoded = Decoder(topic(record_type(schema, {"i": pl.Int64})), source).decode(values)
    assert [(d.row, d.reason) for d in decoded.dead] == [
        (1, "record type x.Y is not declared for topic clicks")
    ]


def test_two_records_that_look_alike_keep_their_names() -> None:
    schema = record_schema({"name": "x", "type": [CARD, BANK]})
    record = record_type(schema, {"x": pl.Object})
    values = encode(schema, {"x": ("test.Bank", {"id": "x"})}, {"x": ("test.Card", {"id": "y"})})
    frame = Decoder(topic(record), MemorySource({1: schema})).decode(values).frames["test.R"]
    assert frame["x"].to_list() == [
        {"-type": "test.Bank", "id": "x"},
        {"-type": "test.Card", "id": "y"},
    ]
