"""Random schemas and random rows: what comes out is what fastavro reads, on either path."""

from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.runtime.avro import Decoder, MemorySource, WriterSchema
from tests.runtime.avro import oracle
from tests.runtime.avro.wire import MS, encode, record_schema, record_type, rows_of, topic

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=40)
YEARS = st.integers(-62_135_596_800_000, 253_402_300_799_999)

Made = tuple[Any, Any, st.SearchStrategy[Any]]
"""An Avro type, its dtype, and values of it."""

PLAIN: list[Made] = [
    ("string", pl.String, TEXT),
    ("bytes", pl.Binary, st.binary(max_size=100)),
    ("int", pl.Int32, INT),
    ("long", pl.Int64, LONG),
    ("float", pl.Float32, st.floats(width=32, allow_nan=False)),
    ("double", pl.Float64, st.floats(allow_nan=False)),
    ("boolean", pl.Boolean, st.booleans()),
]


class Maker:
    """Makes random types; named ones get fresh names."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def any_type(self, depth: int) -> Made:
        kinds = ["plain", "plain", "time", "enum", "fixed", "nullable"]
        kinds += ["array", "record", "map"] if depth < 2 else []
        match self._draw(st.sampled_from(kinds)):
            case "time" if depth == 0:
                return {"type": "long", "logicalType": "timestamp-millis"}, MS, YEARS
            case "enum":
                return self.enum()
            case "fixed":
                avro = {"type": "fixed", "name": self.name(), "size": 3}
                return avro, pl.Binary, st.binary(min_size=3, max_size=3)
            case "nullable":
                return self.nullable(depth)
            case "array":
                items, dtype, values = self.any_type(depth + 1)
                avro = {"type": "array", "items": items}
                return avro, pl.List(dtype), st.lists(values, max_size=4)
            case "record":
                return self.record(depth)
            case "map" if depth == 0:
                values = st.dictionaries(TEXT, INT, max_size=3)
                return {"type": "map", "values": "int"}, pl.Object, values
        return self._draw(st.sampled_from(PLAIN))

    def enum(self) -> Made:
        symbols = ["A", "B", "C"]
        avro = {"type": "enum", "name": self.name(), "symbols": symbols}
        return avro, pl.String, st.sampled_from(symbols)

    def nullable(self, depth: int) -> Made:
        inner, dtype, values = self.any_type(depth)
        if isinstance(inner, list):
            return inner, dtype, values
        branches = ["null", inner] if self._draw(st.booleans()) else [inner, "null"]
        return branches, dtype, st.none() | values

    def record(self, depth: int) -> Made:
        parts = [self.any_type(depth + 1) for _ in range(self._draw(st.integers(1, 3)))]
        fields = [{"name": f"g{i}", "type": part[0]} for i, part in enumerate(parts)]
        avro = {"type": "record", "name": self.name(), "fields": fields}
        dtype = pl.Struct({f"g{i}": part[1] for i, part in enumerate(parts)})
        return avro, dtype, st.fixed_dictionaries({f"g{i}": p[2] for i, p in enumerate(parts)})


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    maker = Maker(draw)
    parts = [maker.any_type(0) for _ in range(draw(st.integers(1, 5)))]
    schema = record_schema(*({"name": f"f{i}", "type": p[0]} for i, p in enumerate(parts)))
    rows = st.fixed_dictionaries({f"f{i}": p[2] for i, p in enumerate(parts)})
    return schema, {f"f{i}": p[1] for i, p in enumerate(parts)}, draw(st.lists(rows, max_size=12))


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables())
def test_rows_are_what_fastavro_reads(
    table: tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]],
) -> None:
    schema, dtypes, rows = table
    values = encode(oracle.without_logical(schema), *rows)
    decoder = Decoder(topic(record_type(schema, dtypes)), MemorySource({1: schema}))
    decoded = decoder.decode(values)
    assert not decoded.dead
    if rows:
        frame = decoded.frames["test.R"]
        assert dict(frame.drop("_row").schema) == dtypes
        assert rows_of(frame.drop("_row")) == [oracle.loose(schema, value) for value in values]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.data())
def test_damage_under_any_schema_stays_where_it_is(
    table: tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]], data: st.DataObject
) -> None:
    schema, dtypes, rows = table
    values = encode(oracle.without_logical(schema), *rows)
    if not values:
        return
    hit = data.draw(st.integers(0, len(values) - 1))
    place = data.draw(st.integers(5, len(values[hit])))
    noise = data.draw(st.binary(max_size=6))
    good = [oracle.loose(schema, value) for value in values]
    values[hit] = values[hit][:place] + noise + values[hit][place + data.draw(st.integers(0, 6)) :]
    decoder = Decoder(topic(record_type(schema, dtypes)), MemorySource({1: schema}))
    decoded = decoder.decode(values)
    out = {r.pop("_row"): r for f in decoded.frames.values() for r in rows_of(f)}
    for i in range(len(values)):
        if i != hit:
            assert out[i] == good[i]
        elif i in out:
            assert repr(out[i]) == repr(oracle.loose(schema, values[hit]))


def test_which_schemas_are_columnar_does_not_change_unnoticed() -> None:
    def columnar(avro: Any, dtype: Any) -> bool:
        schema = record_schema({"name": "x", "type": avro})
        decoder = Decoder(topic(record_type(schema, {"x": dtype})), MemorySource({}))
        return decoder.columnar(WriterSchema.of(1, schema))

    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": "string"}]}
    for avro, dtype, _ in PLAIN:
        assert columnar(avro, dtype) and columnar(["null", avro], dtype)
    assert columnar(enum, pl.String) and columnar([enum, "null"], pl.String)
    assert columnar({"type": "array", "items": "string"}, pl.List(pl.String))
    assert columnar(["null", inner], pl.Struct({"a": pl.String}))
    assert columnar({"type": "array", "items": ["null", enum]}, pl.List(pl.String))
    branches = {"name": "of", "type": {"type": "array", "items": "T"}}
    tree = {"type": "record", "name": "T", "fields": [branches]}
    assert not columnar(tree, pl.Object)
    empty = {"type": "record", "name": "Z", "fields": []}
    assert not columnar({"type": "array", "items": empty}, pl.Object)
    assert not columnar({"type": "map", "values": "long"}, pl.Object)
    assert not columnar("null", pl.Null)
