"""Encoding by columns is byte for byte encoding by rows, and never more lenient."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.columnar import ColumnEncoder, FrameEncoder, NotColumnar
from connectors.encode import EncodeError, Encoder
from schemas import catalog
from streams.runtime.topic import RecordType, Topic

FIELDS: dict[str, tuple[Any, Any, st.SearchStrategy[Any]]] = {
    "string": ("string", pl.String, st.text(max_size=200)),
    "int": ("int", pl.Int64, st.integers(-(2**31), 2**31 - 1)),
    "long": ("long", pl.Int64, st.integers(-(2**63), 2**63 - 1)),
    "small": ("long", pl.Int8, st.integers(-128, 127)),
    "double": ("double", pl.Float64, st.floats(allow_nan=False, allow_infinity=False)),
    "float": ("float", pl.Float32, st.floats(width=32, allow_nan=False, allow_infinity=False)),
    "boolean": ("boolean", pl.Boolean, st.booleans()),
    "enum": (
        {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(100)]},
        pl.String,
        st.integers(0, 99).map(lambda n: f"S{n}"),
    ),
    "time": (
        {"type": "long", "logicalType": "timestamp-millis"},
        pl.Int64,
        st.integers(-62_135_596_800_000, 253_402_300_799_000),
    ),
}


def topic_of(*fields: dict[str, Any]) -> Topic:
    schema = {"type": "record", "name": "R", "fields": [{"name": "k", "type": "string"}, *fields]}
    record = RecordType("R", json.dumps(schema), {}, dict)
    return Topic("t", (record,), "k", None, 1, "test", "")


def encoders(topic: Topic) -> tuple[ColumnEncoder, Encoder]:
    rows = Encoder(topic, {r.fullname: 2**31 - 1 for r in topic.records})
    return ColumnEncoder(topic.records[0], topic.key, 2**31 - 1), rows


def kind_of(name: str, prefix: str) -> Any:
    kind = FIELDS[name][0]
    return {**kind, "name": f"{prefix}Enum"} if name == "enum" else kind


WHOLE = topic_of(
    *({"name": name, "type": kind_of(name, "")} for name in FIELDS),
    *({"name": f"maybe_{name}", "type": ["null", kind_of(name, "Maybe")]} for name in FIELDS),
    *({"name": f"or_{name}", "type": [kind_of(name, "Or"), "null"]} for name in FIELDS),
)
PREFIXES = ("", "maybe_", "or_")
ROW = st.fixed_dictionaries(
    {
        "k": st.text(min_size=1, max_size=9),
        **{name: values for name, (_, _, values) in FIELDS.items()},
        **{f"maybe_{name}": st.none() | values for name, (_, _, values) in FIELDS.items()},
        **{f"or_{name}": st.none() | values for name, (_, _, values) in FIELDS.items()},
    }
)
DTYPES = {"k": pl.String} | {
    f"{prefix}{name}": dtype for prefix in PREFIXES for name, (_, dtype, _) in FIELDS.items()
}


@settings(deadline=None)
@given(st.lists(ROW, max_size=12), st.data())
def test_by_columns_is_by_rows(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    columns, by_row = encoders(WHOLE)
    frame = pl.DataFrame(rows, schema=DTYPES)
    cut = data.draw(st.integers(0, len(rows)))

    for part, expected in ((frame[cut:], rows[cut:]), (frame, rows)):  # a slice has an offset
        encoded = columns.encode(part)
        assert encoded is not None
        assert list(zip(*encoded, strict=True)) == [by_row.encode("R", row) for row in expected]


@pytest.mark.parametrize(
    ("topic", "record"), [(t, r) for t in catalog.topics().values() for r in t.records]
)
def test_every_flat_record_of_the_catalogue_is_columnar(topic: Topic, record: RecordType) -> None:
    """And those that hold lists are not, which frames of them are told at once."""
    if any(isinstance(dtype, pl.List | pl.Struct) for dtype in record.dtypes.values()):
        with pytest.raises(NotColumnar):
            ColumnEncoder(record, topic.key, 1)
    else:
        assert ColumnEncoder(record, topic.key, 1).encode(pl.DataFrame()) == ([], [])


KIND_OF = {"type": "long", "logicalType": "timestamp-millis"}


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("long", [1, None], "v"),
        ("long", [1.0, 2.0], "v"),
        ("long", [True, False], "v"),
        ("long", ["1", "2"], "v"),
        ("int", [1, 2**31], "v"),
        ("double", [1.0, math.nan], "v"),
        ("double", [1.0, math.inf], "v"),
        ("string", [1, 2], "v"),
        ("boolean", [1, 0], "v"),
        (KIND_OF, [1, 253_402_300_800_000], "v"),
        (KIND_OF, [datetime(2026, 1, 1)], "v"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, ["A", "B"], "v"),
    ],
)
def test_a_value_that_does_not_fit_is_left_to_the_row_encoder(
    kind: Any, values: list[Any], field: str
) -> None:
    topic = topic_of({"name": "v", "type": kind})
    columns, rows = encoders(topic)
    frame = pl.DataFrame({"k": ["k"] * len(values), "v": values})

    assert columns.encode(frame) is None
    with pytest.raises(EncodeError) as refused:
        list(FrameEncoder(rows).encode("R", frame))
    assert refused.value.field == field


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"k": [""], "v": [1]}),
        pl.DataFrame({"k": ["x" * 1_025], "v": [1]}),
        pl.DataFrame({"k": ["k"]}),
        pl.DataFrame({"k": ["k"], "v": [1], "more": [1]}),
    ],
)
def test_a_frame_that_does_not_fit_is_left_to_the_row_encoder(frame: pl.DataFrame) -> None:
    columns, rows = encoders(topic_of({"name": "v", "type": "long"}))

    assert columns.encode(frame) is None
    with pytest.raises(EncodeError):
        list(FrameEncoder(rows).encode("R", frame))


def test_datetimes_and_columns_of_ours() -> None:
    _, rows = encoders(topic_of({"name": "v", "type": KIND_OF}))
    frame = pl.DataFrame({"k": ["a"], "v": [datetime(2026, 1, 1, tzinfo=UTC)], "_line": [7]})

    (encoded,) = FrameEncoder(rows).encode("R", frame)

    assert encoded == rows.encode("R", {"k": "a", "v": 1_767_225_600_000})


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": "long"}, ["null", "long", "string"], "bytes"]
)
def test_what_is_not_flat_goes_by_rows(kind: Any) -> None:
    topic = topic_of({"name": "v", "type": kind})
    with pytest.raises(NotColumnar):
        encoders(topic)
