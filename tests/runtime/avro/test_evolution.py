"""Written with one schema, read with another: as Avro resolves it, the same on both paths."""

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from streams.runtime.avro import Decoder, MemorySource, WriterSchema
from tests.runtime.avro.wire import MS, encode, record_schema, record_type, rows_of, topic

AB = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}
AB_STRICT = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
ABC = {"type": "enum", "name": "E", "symbols": ["C", "B", "A"]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
MAP = {"name": "forces_rows", "type": {"type": "map", "values": "long"}}
POINT_1 = {"type": "record", "name": "P", "fields": [{"name": "a", "type": "long"}]}
POINT_2 = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "long", "default": 9}],
}
DEAD = object()

# name, written type, read type, dtype, written values, read values (DEAD: a dead row)
STEPS: list[tuple[str, Any, Any, Any, list[Any], list[Any]]] = [
    ("int to long", "int", "long", pl.Int64, [1, -5], [1, -5]),
    ("int to float", "int", "float", pl.Float32, [1, -5], [1.0, -5.0]),
    ("int to double", "int", "double", pl.Float64, [1], [1.0]),
    ("long to float", "long", "float", pl.Float32, [2], [2.0]),
    ("long to double", "long", "double", pl.Float64, [2**53], [float(2**53)]),
    ("float to double", "float", "double", pl.Float64, [0.5], [0.5]),
    ("string to bytes", "string", "bytes", pl.Binary, ["é"], ["é".encode()]),
    ("bytes to string", "bytes", "string", pl.String, [b"a", b"\xff", b""], ["a", DEAD, ""]),
    ("long to int", "long", "int", pl.Int32, [1], [DEAD]),
    ("string to long", "string", "long", pl.Int64, ["1"], [DEAD]),
    ("T to nullable", "long", ["null", "long"], pl.Int64, [1], [1]),
    ("T to nullable, promoted", "int", ["null", "double"], pl.Float64, [1], [1.0]),
    ("nullable to T", ["null", "long"], "long", pl.Int64, [1, None], [1, DEAD]),
    ("nullable turned around", ["null", "long"], ["long", "null"], pl.Int64, [1, None], [1, None]),
    ("nullable promoted", ["null", "int"], ["null", "long"], pl.Int64, [1, None], [1, None]),
    ("enum re-ordered", ABC, AB, pl.String, ["A", "B"], ["A", "B"]),
    ("enum with default", ABC, AB, pl.String, ["C", "B"], ["A", "B"]),
    ("enum without default", ABC, AB_STRICT, pl.String, ["C", "B"], [DEAD, "B"]),
    ("enum as pl.Enum", ABC, AB, pl.Enum(["A", "B"]), ["C", "B"], ["A", "B"]),
    ("nullable enum", ["null", ABC], ["null", AB], pl.String, ["C", None], ["A", None]),
    ("long to time", "long", TIME, MS, [5, 2**62], [5, DEAD]),
    ("time to long", TIME, "long", pl.Int64, [5], [5]),
    ("nested field added", POINT_1, POINT_2, pl.Struct({"a": pl.Int64, "b": pl.Int64}),
     [{"a": 1}], [{"a": 1, "b": 9}]),
    ("nested field removed", POINT_2, POINT_1, pl.Struct({"a": pl.Int64}),
     [{"a": 1, "b": 2}], [{"a": 1}]),
]  # fmt: skip


@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize(
    ("written", "read", "dtype", "values", "expected"),
    [pytest.param(*rest, id=name) for name, *rest in STEPS],
)
def test_type_step(
    written: Any, read: Any, dtype: Any, values: list[Any], expected: list[Any], by_rows: bool
) -> None:
    extra = [MAP] if by_rows else []
    writer = record_schema({"name": "x", "type": written}, *extra)
    reader = record_schema({"name": "x", "type": read}, *extra)
    dtypes = {"x": dtype} | ({"forces_rows": pl.Object} if by_rows else {})
    rows = [{"x": v, "forces_rows": {}} for v in values]
    check(writer, reader, dtypes, rows, [{"x": e} for e in expected])


def check(
    writer: Any,
    reader: Any,
    dtypes: dict[str, Any],
    rows: list[dict[str, Any]],
    expected: list[dict[str, Any]],
) -> Decoder:
    decoder = Decoder(topic(record_type(reader, dtypes)), MemorySource({1: writer}))
    decoded = decoder.decode(encode(writer, *rows))
    got = {
        r.pop("_row"): {k: v for k, v in r.items() if k != "forces_rows"}
        for frame in decoded.frames.values()
        for r in rows_of(frame)
    }
    for frame in decoded.frames.values():
        assert dict(frame.drop("_row").schema) == dtypes
    want = {i: row for i, row in enumerate(expected) if DEAD not in row.values()}
    assert got == want
    assert [d.row for d in decoded.dead] == [i for i in range(len(rows)) if i not in want]
    return decoder


def test_columnar_where_columns_can_express_it() -> None:
    slow = {"nested field added", "nested field removed", "long to int", "string to long"}
    for name, written, read, dtype, *_ in STEPS:
        writer = record_schema({"name": "x", "type": written})
        record = record_type(record_schema({"name": "x", "type": read}), {"x": dtype})
        decoder = Decoder(topic(record), MemorySource({}))
        assert decoder.columnar(WriterSchema.of(1, writer)) is (name not in slow), name


@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
def test_fields_added_removed_renamed_and_re_ordered(by_rows: bool) -> None:
    extra = [MAP] if by_rows else []
    writer = record_schema(
        {"name": "gone", "type": "string"},
        {"name": "old", "type": "long"},
        {"name": "kept", "type": "string"},
        *extra,
    )
    reader = record_schema(
        {"name": "kept", "type": "string"},
        {"name": "text", "type": "string", "default": "né"},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "none", "type": ["null", "long"], "default": None},
        {"name": "list", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
        {"name": "point", "type": POINT_2, "default": {"a": 1, "b": 2}},
        {"name": "at", "type": TIME, "default": 5},
        {"name": "kind", "type": AB, "default": "B"},
        {"name": "flag", "type": "boolean", "default": True},
        {"name": "new", "type": "double", "aliases": ["older", "old"]},
        *extra,
    )
    dtypes = {
        "kept": pl.String,
        "text": pl.String,
        "raw": pl.Binary,
        "none": pl.Int64,
        "list": pl.List(pl.Int64),
        "point": pl.Struct({"a": pl.Int64, "b": pl.Int64}),
        "at": MS,
        "kind": pl.String,
        "flag": pl.Boolean,
        "new": pl.Float64,
    } | ({"forces_rows": pl.Object} if by_rows else {})
    row = {
        "kept": "k", "text": "né", "raw": b"\xff", "none": None, "list": [1, 2],
        "point": {"a": 1, "b": 2}, "at": 5, "kind": "B", "flag": True, "new": 7.0,
    }  # fmt: skip
    given = {"gone": "g", "old": 7, "kept": "k", "forces_rows": {}}
    check(writer, reader, dtypes, [given, given], [row, row])


def test_a_missing_field_without_default_kills_every_row_of_that_schema() -> None:
    writer = record_schema({"name": "a", "type": "long"})
    reader = record_schema({"name": "a", "type": "long"}, {"name": "b", "type": "long"})
    record = record_type(reader, {"a": pl.Int64, "b": pl.Int64})
    decoded = Decoder(topic(record), MemorySource({1: writer})).decode(encode(writer, {"a": 1}))
    assert [d.reason for d in decoded.dead] == ["field b: not written, and without a default"]


def test_microseconds_are_never_read_as_milliseconds() -> None:
    writer = record_schema({"name": "at", "type": MICROS})
    record = record_type(record_schema({"name": "at", "type": TIME}), {"at": MS})
    values = encode(writer, {"at": 5})
    decoded = Decoder(topic(record), MemorySource({1: writer})).decode(values)
    assert [d.reason for d in decoded.dead] == [
        "field at: written as timestamp-micros, read as timestamp-millis"
    ]


@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
def test_a_renamed_record(by_rows: bool) -> None:
    extra = [MAP] if by_rows else []
    writer = record_schema({"name": "a", "type": "long"}, *extra, name="test.Old")
    reader = record_schema({"name": "a", "type": "long"}, *extra) | {"aliases": ["test.Old"]}
    dtypes = {"a": pl.Int64} | ({"forces_rows": pl.Object} if by_rows else {})
    check(writer, reader, dtypes, [{"a": 1, "forces_rows": {}}], [{"a": 1}])


def test_two_versions_of_the_writer_and_two_record_types_interleaved() -> None:
    old = record_schema({"name": "a", "type": "int"})
    new = record_schema({"name": "b", "type": "string"}, {"name": "a", "type": "long"})
    other = record_schema({"name": "c", "type": "boolean"}, name="test.Other")
    record = record_type(record_schema({"name": "a", "type": "long"}), {"a": pl.Int64})
    also = record_type(other, {"c": pl.Boolean})
    decoder = Decoder(topic(record, also), MemorySource({1: old, 2: new, 3: other}))
    values: list[bytes] = []
    for i in range(60):
        row, schema = [({"a": i}, old), ({"a": i, "b": "x"}, new), ({"c": i % 2 == 0}, other)][
            i % 3
        ]
        values += encode(schema, row, schema_id=i % 3 + 1)
    decoded = decoder.decode(values)
    assert rows_of(decoded.frames["test.R"]) == [
        {"_row": i, "a": i} for i in range(60) if i % 3 != 2
    ]
    assert rows_of(decoded.frames["test.Other"]) == [
        {"_row": i, "c": i % 2 == 0} for i in range(60) if i % 3 == 2
    ]
    assert not decoded.dead


LOGICAL: list[tuple[str, Any, Any, Any, Any]] = [
    ("date", {"type": "int", "logicalType": "date"}, pl.Date, -719_162, date(1, 1, 1)),
    ("time-millis", {"type": "int", "logicalType": "time-millis"}, pl.Time, 86_399_999,
     time(23, 59, 59, 999_000)),
    ("time-micros", {"type": "long", "logicalType": "time-micros"}, pl.Time, 1, time(0, 0, 0, 1)),
    ("micros as millis", MICROS, MS, 253_402_300_799_999_999, 253_402_300_799_999),
    ("uuid", {"type": "string", "logicalType": "uuid"}, pl.String, "u", "u"),
    ("uuid fixed", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, pl.String,
     b"\x00" * 16, "00000000-0000-0000-0000-000000000000"),
    ("decimal", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     pl.Decimal(9, 2), b"\xff", Decimal("-0.01")),
    ("decimal fixed", {"type": "fixed", "name": "D", "size": 2, "logicalType": "decimal",
     "precision": 4, "scale": 1}, pl.Decimal(4, 1), b"\x01\x00", Decimal("25.6")),
    ("array of times", {"type": "array", "items": "int"}, pl.List(pl.Int32), [1, -1], [1, -1]),
    ("array of micros", {"type": "array", "items": MICROS}, pl.List(MS), [1_500, -1],
     [datetime(1970, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC),
      datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]),
    ("record of times", {"type": "record", "name": "T", "fields": [
        {"name": "at", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}}]},
     pl.Struct({"at": pl.Time, "on": pl.Date}), {"at": 1_000, "on": 0},
     {"at": time(0, 0, 1), "on": date(1970, 1, 1)}),
    ("union of types", ["null", "long", "string"], pl.Object, "a", "a"),
    ("map", {"type": "map", "values": "int"}, pl.Object, {"k": 1}, {"k": 1}),
    ("map as entries", {"type": "map", "values": "long"},
     pl.List(pl.Struct({"key": pl.String, "value": pl.Int64})), {"k": 1},
     [{"key": "k", "value": 1}]),
    ("map as JSON", {"type": "map", "values": "long"}, pl.String, {"k": 1}, '{"k": 1}'),
]  # fmt: skip


@pytest.mark.parametrize("by_rows", [False, True], ids=["columns", "rows"])
@pytest.mark.parametrize(
    ("avro", "dtype", "raw", "expected"),
    [pytest.param(*rest, id=name) for name, *rest in LOGICAL],
)
def test_logical_and_complex_types(
    avro: Any, dtype: Any, raw: Any, expected: Any, by_rows: bool
) -> None:
    extra = [MAP] if by_rows else []
    schema = record_schema({"name": "x", "type": avro}, *extra)
    dtypes = {"x": dtype} | ({"forces_rows": pl.Object} if by_rows else {})
    record = record_type(schema, dtypes)
    from streams.runtime.avro.schema import without_logical

    values = encode(without_logical(schema), {"x": raw, "forces_rows": {}})
    decoded = Decoder(topic(record), MemorySource({1: schema})).decode(values)
    assert not decoded.dead
    assert rows_of(decoded.frames["test.R"], ["x"]) == [{"x": expected}]
