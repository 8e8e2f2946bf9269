"""A corrupt or crafted record never shifts, alters or hides a neighbour."""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.runtime.avro import Decoder, MemorySource, container
from tests.runtime.avro import oracle
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

LINE = {
    "type": "record",
    "name": "Line",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "gift", "type": ["null", "boolean"]},
        {"name": "quantity", "type": "int"},
        {"name": "state", "type": ["test.Kind", "null"]},
    ],
}
LINE_DTYPE = pl.Struct(
    {"sku": pl.String, "gift": pl.Boolean, "quantity": pl.Int32, "state": pl.String}
)
SCHEMA = record_schema(
    {"name": "id", "type": "string"},
    {"name": "count", "type": "int"},
    {"name": "flag", "type": "boolean"},
    {"name": "note", "type": ["null", "string"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "type": "double"},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B", "C"]}},
    {"name": "late", "type": ["long", "null"]},
    {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 4}},
    {"name": "lines", "type": {"type": "array", "items": LINE}},
    {"name": "first", "type": ["null", "test.Line"]},
)
DTYPES = {
    "id": pl.String,
    "count": pl.Int32,
    "flag": pl.Boolean,
    "note": pl.String,
    "at": MS,
    "price": pl.Float64,
    "tags": pl.List(pl.String),
    "kind": pl.String,
    "late": pl.Int64,
    "mark": pl.Binary,
    "lines": pl.List(LINE_DTYPE),
    "first": LINE_DTYPE,
}
TOPIC = topic(record_type(SCHEMA, DTYPES))
SOURCE = MemorySource({1: SCHEMA})


def line(i: int) -> dict[str, Any]:
    return {
        "sku": f"s{i}",
        "gift": None if i % 2 else i % 4 == 0,
        "quantity": i,
        "state": None if i % 4 == 1 else "ABC"[i % 3],
    }


def row(i: int) -> dict[str, Any]:
    return {
        "id": f"id-{i}",
        "count": i - 5,
        "flag": i % 2 == 0,
        "note": None if i % 3 == 1 else "né" * i,
        "at": 1_790_000_000_000 + i,
        "price": i / 4,
        "tags": ["x" * j for j in range(i % 5)],
        "kind": "ABC"[i % 3],
        "late": None if i % 2 else i * 1_000,
        "mark": b"mark",
        "lines": [line(i + j) for j in range(i % 3)],
        "first": line(i) if i % 3 else None,
    }


GOOD = encode(SCHEMA, *map(row, range(24)))
VICTIM = 8
"""A row with nothing null or empty, so that every kind of byte is damaged."""


def judge(values: list[bytes], touched: set[int]) -> None:
    """Untouched rows as they were; touched ones dead or as fastavro reads them."""
    decoded = Decoder(TOPIC, SOURCE).decode(values)
    out = {r.pop("_row"): r for f in decoded.frames.values() for r in rows_of(f)}
    dead = {d.row for d in decoded.dead}
    for i, value in enumerate(values):
        if i not in touched:
            assert out[i] == row(i)
        elif (record := oracle.strict(SCHEMA, value)) is not None and in_range(record):
            assert same(out[i], record), i
        elif i not in dead:
            assert same(out[i], oracle.loose(SCHEMA, value)), i


def in_range(record: dict[str, Any]) -> bool:
    years = -62_135_596_800_000 <= record["at"] <= 253_402_300_799_999
    lines = [*record["lines"], *([record["first"]] if record["first"] else [])]
    numbers = [record["count"], *(inner["quantity"] for inner in lines)]
    return years and all(-(2**31) <= number < 2**31 for number in numbers)


def same(got: dict[str, Any], want: dict[str, Any] | None) -> bool:
    if want is None:
        return False
    pairs = ((got[name], want[name]) for name in want)
    return all(g == w or (g != g and math.isnan(w)) for g, w in pairs)


def test_the_schema_is_read_as_columns() -> None:
    assert Decoder(TOPIC, SOURCE).columnar(SOURCE.writer_schema(1))


def test_every_truncation_of_one_record_is_found() -> None:
    victim = GOOD[VICTIM]
    for cut in range(len(victim)):
        values = [*GOOD[:VICTIM], victim[:cut], *GOOD[VICTIM + 1 :]]
        decoded = Decoder(TOPIC, SOURCE).decode(values)
        assert [d.row for d in decoded.dead] == [VICTIM]
        judge(values, {VICTIM})


def test_every_flipped_bit_of_one_record_is_dead_or_what_fastavro_reads() -> None:
    victim = GOOD[VICTIM]
    for place in range(5, len(victim)):
        for bit in range(8):
            changed = bytearray(victim)
            changed[place] ^= 1 << bit
            judge([*GOOD[:VICTIM], bytes(changed), GOOD[VICTIM + 1]], {VICTIM})


def test_a_string_that_swallows_its_neighbour_is_found() -> None:
    swallowed = len(container_gap()) + len(GOOD[1])
    body = bytearray(GOOD[0][5:])
    body[0:1] = varint(4 + swallowed)
    decoded = Decoder(TOPIC, SOURCE).decode([framed(bytes(body)), *GOOD[1:]])
    assert [d.row for d in decoded.dead] == [0]


def container_gap() -> bytes:
    return bytes(container.GAP_BYTES)


def test_bytes_that_look_like_a_border_are_content(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = bytes(range(65, 65 + container.GAP_BYTES))
    monkeypatch.setattr(container, "_noise", lambda: noise)
    text = (noise * 3).decode()
    values = [*encode(SCHEMA, {**row(0), "id": text}), *GOOD[1:]]
    decoded = Decoder(TOPIC, SOURCE).decode(values)
    assert not decoded.dead
    assert decoded.frames["test.R"]["id"][0] == text


def test_an_array_that_lies_about_its_bytes_reads_the_same_when_projected() -> None:
    schema = record_schema(
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "b", "type": "long"},
        {"name": "c", "type": "string"},
    )
    record = record_type(schema, {"a": pl.List(pl.Int64), "b": pl.Int64, "c": pl.String})
    good = encode(schema, {"a": [1], "b": 0, "c": "x"})[0]
    # One item of 0 bytes, it says: who skips by that takes b for the array's end.
    sly = [varint(n) for n in (-1, 0, 1, 0, 0, 4, 3)]
    values = [good, framed(b"".join(sly) + b"abc"), good]
    for columns in (None, {"test.R": ["c"]}):
        decoded = Decoder(topic(record), MemorySource({1: schema}), columns).decode(values)
        assert decoded.frames["test.R"]["c"].to_list() == ["x", "\x06abc", "x"]


EDITS = st.lists(
    st.tuples(
        st.integers(0, len(GOOD) - 1),
        st.sampled_from(["cut", "insert", "delete", "flip", "append", "double", "replace"]),
        st.integers(0, 200),
        st.binary(min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=6,
)


def edited(value: bytes, how: str, where: int, noise: bytes) -> bytes:
    at = where % (len(value) + 1)
    match how:
        case "cut":
            return value[:at]
        case "insert":
            return value[:at] + noise + value[at:]
        case "delete":
            return value[:at] + value[at + len(noise) :]
        case "flip":
            return value[:at] + noise + value[at + len(noise) :]
        case "append":
            return value + noise
        case "double":
            return value + value
    return value[:5] + noise


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EDITS)
def test_random_damage(edits: list[tuple[int, str, int, bytes]]) -> None:
    values = list(GOOD)
    for i, how, where, noise in edits:
        values[i] = edited(values[i], how, where, noise)
    judge(values, {i for i, *_ in edits})


@settings(max_examples=60, deadline=None)
@given(EDITS)
def test_a_projection_gives_the_same_rows_or_fewer_dead(
    edits: list[tuple[int, str, int, bytes]],
) -> None:
    values = list(GOOD)
    for i, how, where, noise in edits:
        values[i] = edited(values[i], how, where, noise)
    columns = ["id", "late", "at"]
    full = Decoder(TOPIC, SOURCE).decode(values)
    part = Decoder(TOPIC, SOURCE, {"test.R": columns}).decode(values)
    names = ["_row", *columns]
    rows = {r["_row"]: r for r in rows_of(part.frames["test.R"])}
    assert {d.row for d in part.dead} <= {d.row for d in full.dead}
    for whole in rows_of(full.frames["test.R"], names):
        assert rows[whole["_row"]] == whole
