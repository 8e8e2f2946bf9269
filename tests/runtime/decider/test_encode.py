"""The compiled writer writes what fastavro writes, and refuses what it must."""

from __future__ import annotations

import io
import json
import struct
from dataclasses import make_dataclass
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.decider.encode import writer
from streams.runtime.topic import RecordType

LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "string": ("string", st.text(st.characters(exclude_categories=("Cs",)), max_size=200)),
    "long": ("long", LONGS),
    "int": ("int", st.integers(-(2**31), 2**31 - 1)),
    "boolean": ("boolean", st.booleans()),
    "time": ({"type": "long", "logicalType": "timestamp-millis"}, LONGS),
    "maybe": (["null", "string"], st.none() | st.just("x")),
    "last": (["long", "null"], st.none() | LONGS),
    "flag": (["null", "boolean"], st.none() | st.booleans()),
}
SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [{"name": name, "type": kind} for name, (kind, _) in VALUES.items()],
}
ROW = make_dataclass("Row", list(VALUES), frozen=True, slots=True)
WRITE = writer(RecordType("Row", json.dumps(SCHEMA), dict.fromkeys(VALUES), ROW), 7)


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({name: values for name, (_, values) in VALUES.items()}))
def test_the_bytes_are_those_of_fastavro(row: dict[str, Any]) -> None:
    plain = json.loads(json.dumps(SCHEMA).replace(', "logicalType": "timestamp-millis"', ""))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(plain), row)
    assert WRITE(ROW(**row)) == struct.pack(">bI", 0, 7) + body.getvalue()


GOOD: dict[str, Any] = {
    **{"string": "a", "long": 1, "int": 1, "boolean": True, "time": 1},
    **{"maybe": None, "last": None, "flag": None},
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *[("string", bad) for bad in (None, 1, b"x", "\ud800")],
        *[("long", bad) for bad in (None, "1", 1.0, True, 2**63, -(2**63) - 1)],
        *[("int", bad) for bad in (2**31, -(2**31) - 1, 1.0)],
        *[("boolean", bad) for bad in (None, 1, 0, "x")],
        *[("maybe", bad) for bad in (1, b"x")],
        *[("last", bad) for bad in (1.5, "x", 2**63)],
    ],
)
def test_what_the_record_cannot_hold_is_refused(field: str, value: Any) -> None:
    WRITE(ROW(**GOOD))
    with pytest.raises((TypeError, AttributeError, OverflowError, UnicodeEncodeError)):
        WRITE(ROW(**{**GOOD, field: value}))


def test_other_records_go_through_fastavro() -> None:
    fields = [{"name": "legs", "type": {"type": "array", "items": "long"}}]
    schema = {"type": "record", "name": "Trip", "fields": fields}
    row = make_dataclass("Trip", ["legs"])
    write = writer(RecordType("Trip", json.dumps(schema), {"legs": None}, row), 7)
    assert write(row([1, 2])) == b"\0\0\0\0\7\4\2\4\0"
    with pytest.raises(Exception, match=r"."):
        write(row(["x"]))
