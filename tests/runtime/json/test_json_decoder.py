"""JSON values to columns: the Avro decoder's promise, held against a reading of our own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.registry import subjects
from streams.runtime.avro import ROW, Decoder, MemorySource
from streams.runtime.decoding import decoder
from streams.runtime.json import JsonDecoder
from streams.runtime.topic import RecordType, Topic

MS = pl.Datetime("ms", "UTC")
FIELDS: list[tuple[str, Any, Any]] = [
    ("ad", "string", pl.String),
    ("at", {"type": "long", "logicalType": "timestamp-millis"}, MS),
    ("n", "int", pl.Int32),
    ("big", ["null", "long"], pl.Int64),
    ("ok", "boolean", pl.Boolean),
    ("x", "double", pl.Float64),
    ("kind", {"type": "enum", "name": "Kind", "symbols": ["view", "click"]}, pl.String),
]
GOOD = {"ad": "a", "at": "1700000000000", "n": 7, "big": None, "ok": True, "x": 0.5, "kind": "view"}


@dataclass(frozen=True)
class Row:
    """Not made here."""


def record_type(fields: list[tuple[str, Any, Any]], **defaults: Any) -> RecordType:
    made = [
        {"name": name, "type": kind, **({"default": defaults[name]} if name in defaults else {})}
        for name, kind, _ in fields
    ]
    schema = {"type": "record", "name": "test.R", "fields": made}
    return RecordType("test.R", json.dumps(schema), {n: d for n, _, d in fields}, Row)


def topic(*records: RecordType, encoding: Any = "json") -> Topic:
    return Topic("test.json", records, "ad", "at", 1, "test", "Test.", encoding=encoding)


DECODER = JsonDecoder(topic(record_type(FIELDS)))


def decode_one(value: bytes) -> dict[str, Any] | None:
    """The row of a value by itself; None where it is dead."""
    decoded = DECODER.decode([value])
    assert len(decoded.dead) + sum(f.height for f in decoded.frames.values()) == 1
    return None if decoded.dead else decoded.frames["test.R"].drop(ROW).row(0, named=True)


def oracle(value: bytes) -> dict[str, Any] | None:
    """The row by the standard library's parser; None where it is no record."""
    try:
        record = json.loads(value.decode(), parse_constant=_refuse)
    except ValueError:
        return None
    if not isinstance(record, dict) or any(name not in record for name in GOOD):
        return None
    at = _integer(record["at"], -62_135_596_800_000, 253_402_300_799_999)
    n = _integer(record["n"], -(2**31), 2**31 - 1)
    big = _integer(record["big"], -(2**63), 2**63 - 1)
    good = (
        isinstance(record["ad"], str)
        and at is not None
        and n is not None
        and (record["big"] is None or big is not None)
        and isinstance(record["ok"], bool)
        and type(record["x"]) in {int, float}
        and record["kind"] in ("view", "click")
    )
    if not good or at is None:
        return None
    when = datetime.fromtimestamp(0, UTC).timestamp() + at / 1000
    made = {name: record[name] for name in GOOD} | {"at": when, "n": n, "big": big}
    return made | {"x": float(record["x"])}


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _integer(value: Any, low: int, high: int) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"0|-?[1-9][0-9]{0,18}", value, re.ASCII):
        value = int(value)
    return value if type(value) is int and low <= value <= high else None


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.integers(-(2**31), 2**31).map(str),
    st.integers(0, 253_402_300_799_999).map(str),
    st.sampled_from(["view", "click", "007", "+1", "-0", " 1", "1.0", "", "９", "\n", "nan"]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.sampled_from('aé"\\\n\x00{}:,\u2028\ud800😀'), max_size=5),
    st.lists(st.integers(), max_size=2),
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(st.just(value), st.just(value), SCALARS) for name, value in GOOD.items()
    }
    | {"extra": SCALARS},
)
VALUES = st.one_of(
    st.just(json.dumps(GOOD).encode()),
    RECORDS.map(lambda record: json.dumps(GOOD | record).encode()),
    RECORDS.map(
        lambda record: json.dumps(record, ensure_ascii=False, indent=1).encode(
            errors="surrogatepass"
        )
    ),
    st.tuples(st.just(json.dumps(GOOD).encode()), st.integers(0, 120), st.binary(max_size=2)).map(
        lambda t: t[0][: t[1]] + t[2] + t[0][t[1] :]
    ),
    st.binary(max_size=20),
    st.sampled_from([b"", b"{}", b"[]", b"null", b'{"ad":"x', b'y"}', b'{"ad":1},{"ad":2}']),
)


@settings(deadline=None)
@given(VALUES)
def test_a_value_is_read_as_the_standard_library_reads_it(value: bytes) -> None:
    found, wanted = decode_one(value), oracle(value)
    if found is not None:
        found["at"] = found["at"].timestamp()
    assert found == wanted


@settings(deadline=None)
@given(st.lists(st.one_of(VALUES, st.none()), max_size=30))
def test_no_value_depends_on_its_neighbours(values: list[bytes | None]) -> None:
    decoded = DECODER.decode(values)
    frame = decoded.frames.get("test.R", pl.DataFrame(schema={ROW: pl.Int64}))
    assert frame[ROW].is_sorted()
    rows = dict(zip(frame[ROW].to_list(), frame.drop(ROW).iter_rows(named=True), strict=True))
    dead = {one.row for one in decoded.dead}
    for at, value in enumerate(values):
        fates = (at in rows, at in dead, at in decoded.tombstones)
        assert fates.count(True) == 1
        if value is None:
            assert at in decoded.tombstones
        else:
            assert rows.get(at) == decode_one(value)


def value(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"", "JSON: Input data was truncated"),
        (b"[" * 100_000, "JSON: Expected `object`, got `array`"),
        (b'{"z":' + b"[" * 100_000, "nested too deeply"),
        (value() + value(), "trailing characters"),
        (value()[:-1], "truncated"),
        (value(ad=1), "Expected `str`, got `int` - at `$.ad`"),
        (value(ad="?").replace(b"?", b"\xff"), "Invalid UTF-8"),
        (value(ad="?").replace(b"?", b"\n"), "invalid character"),
        (value(ad="?").replace(b"?", b"\\ud800"), "surrogate"),
        (value(x=float("nan")), "malformed"),
        (value(x="0.5"), "Expected `float`, got `str` - at `$.x`"),
        (value(n=2**31), "Expected `int` <= 2147483647 - at `$.n`"),
        (value(n=str(2**31)), "field n: a string that is no integer of its range"),
        (value(n=1.0), "Expected `int | str`, got `float` - at `$.n`"),
        (value(at="007"), "field at: a string that is no integer of its range"),
        (value(at=None), "Expected `int | str`, got `null` - at `$.at`"),
        (value(kind="purchase"), "Invalid enum value"),
    ],
)
def test_poison_is_dead_and_says_why_and_its_neighbours_live(bad: bytes, reason: str) -> None:
    decoded = DECODER.decode([value(n=1), bad, None, value(n="2")])
    assert [one.row for one in decoded.dead] == [1]
    assert reason in decoded.dead[0].reason
    assert decoded.tombstones == [2]
    frame = decoded.frames["test.R"]
    assert (frame[ROW].to_list(), frame["n"].to_list()) == ([0, 3], [1, 2])


def test_what_is_skipped_repeated_or_has_a_default() -> None:
    fields = [FIELDS[0], FIELDS[2]]
    with_default = JsonDecoder(topic(record_type(fields, n=5)))
    frame = with_default.decode([b'{"ad":"a","ad":"b","other":{"n":[1]}}']).frames["test.R"]
    assert frame.drop(ROW).to_dicts() == [{"ad": "b", "n": 5}]


def test_columns_are_the_schema_s_and_only_those_asked_for() -> None:
    whole = DECODER.decode([value()]).frames["test.R"]
    assert dict(whole.schema) == {ROW: pl.Int64} | {name: dtype for name, _, dtype in FIELDS}
    some = JsonDecoder(topic(record_type(FIELDS)), {"test.R": ("n", "ad")})
    assert some.decode([value()]).frames["test.R"].columns == [ROW, "ad", "n"]
    with pytest.raises(KeyError, match="no field nothing"):
        JsonDecoder(topic(record_type(FIELDS)), {"test.R": ("nothing",)})


@pytest.mark.parametrize(
    "kind",
    [
        "bytes",
        {"type": "array", "items": "long"},
        ["string", "long"],
        {"type": "int", "logicalType": "time-millis"},
        {"type": "string", "logicalType": "uuid"},
    ],
)
def test_types_without_a_plain_json_value_are_refused_before_anything_is_read(kind: Any) -> None:
    with pytest.raises(TypeError, match="no JSON value"):
        JsonDecoder(topic(record_type([("x", kind, pl.String)])))


def test_the_topic_says_which_decoder_reads_it() -> None:
    record = record_type(FIELDS)
    assert isinstance(decoder(topic(record), MemorySource({})), JsonDecoder)
    assert isinstance(decoder(topic(record, encoding="avro"), MemorySource({})), Decoder)
    with pytest.raises(TypeError, match="several record types"):
        JsonDecoder(topic(record, record))


def test_the_registry_hears_nothing_of_a_json_topic() -> None:
    record = record_type(FIELDS)
    assert subjects(topic(record)) == []
    assert len(subjects(topic(record, encoding="avro"))) == 1
