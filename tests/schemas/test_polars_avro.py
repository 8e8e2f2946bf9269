"""What `not_columnar` says is what the installed Polars does, type by type."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import polars as pl
import pytest

from schemas.generate.types import Types, not_columnar

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}
RECORD = {
    "type": "record",
    "name": "I",
    "doc": "I.",
    "fields": [{"name": "a", "type": "long", "doc": "A."}],
}
FIXED = {"type": "fixed", "name": "F", "size": 2}

TYPES: list[tuple[Any, list[Any]]] = [
    ("string", ["a", "ü"]),
    ("long", [2**62, -(2**62)]),
    ("int", [2**30, -1]),
    ("double", [0.5, -0.25]),
    ("float", [0.5, -0.25]),
    ("boolean", [True, False]),
    ("bytes", [b"a", b""]),
    (FIXED, [b"ab", b"cd"]),
    (ENUM, ["A", "B"]),
    (RECORD, [{"a": 1}, {"a": 2}]),
    ({"type": "array", "items": "string"}, [["a"], []]),
    ({"type": "array", "items": RECORD}, [[{"a": 1}], []]),
    ({"type": "array", "items": ["null", "long"]}, [[1, None], []]),
    ({"type": "map", "values": "long"}, [{"a": 1}, {}]),
    ("null", [None, None]),
    (["string"], ["a", "b"]),
    (["string", "long"], ["a", 1]),
    (["null", "string", "long"], ["a", None]),
]
NULLABLE = [
    (["null", schema], [values[0], None])
    for schema, values in TYPES
    if not isinstance(schema, list) and schema != "null"
]
REVERSED = [([t[1], t[0]], values) for t, values in NULLABLE]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("schema", "values"), [*TYPES, *NULLABLE, *REVERSED], ids=str)
def test_polars_reads_what_we_say_it_reads(schema: Any, values: list[Any]) -> None:
    record = {
        "type": "record",
        "name": "R",
        "doc": "R.",
        "fields": [{"name": "x", "type": schema, "doc": "X."}],
    }
    container = io.BytesIO()
    fastavro.writer(container, record, [{"x": value} for value in values])
    container.seek(0)
    if list(not_columnar(record, "R")):
        with pytest.raises(BaseException, match=r"not yet implemented|unreachable"):
            pl.read_avro(container)
        return
    column = pl.read_avro(container)["x"]
    assert column.cast(_dtype(schema)).to_list() == values


def _dtype(schema: Any) -> Any:
    return eval(Types().of(schema, "x").dtype, {"pl": pl})
