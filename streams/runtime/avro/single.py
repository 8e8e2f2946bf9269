"""One record at a time, as the values of its fields: for who has few of them and cannot wait.

Reading a block of columns costs one to two milliseconds, however short it is; a record read here
costs ten microseconds. Only where nothing is left to convert: the writer's schema means what the
reader's does, and what fastavro gives is what the columns' `to_list` would give. All else, and
every record that is not plainly good, is for the columns.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
import polars as pl

from streams.runtime.avro.container import HEADER_BYTES
from streams.runtime.avro.plan import Column, Plan
from streams.runtime.avro.schema import Type, parse, same, without_logical
from streams.runtime.avro.strict import Malformed, check

_DTYPES: dict[str, tuple[Any, ...]] = {
    "boolean": (pl.Boolean,),
    "int": (pl.Int32, pl.Int64),
    "long": (pl.Int64,),
    "double": (pl.Float64,),
    "string": (pl.String,),
    "enum": (pl.String,),
    "timestamp-millis": (pl.Datetime("ms", "UTC"),),
    "timestamp-micros": (pl.Datetime("us", "UTC"),),
}
"""Types, logical ones by their names, and the dtypes whose physical values are fastavro's."""


class SingleReader:
    """Reads single values of one writer schema."""

    def __init__(self, plan: Plan) -> None:
        self.name = plan.record.fullname
        self._writer = plan.writer.type
        self._schema = fastavro.parse_schema(without_logical(plan.writer.json))

    @classmethod
    def of(cls, plan: Plan) -> SingleReader | None:
        """A reader for a plan of all fields; None where values would have to be converted."""
        reader = parse(plan.record.schema)
        whole = len(plan.columns) == len(reader.fields) and same(plan.writer.type, reader)
        return cls(plan) if whole and all(map(_as_it_is, plan.columns)) else None

    def read(self, value: bytes) -> dict[str, Any] | None:
        """The fields by name, times as whole numbers; None if the record is not plainly good."""
        try:
            check(self._writer, value, HEADER_BYTES)
            source = io.BytesIO(value)
            source.seek(HEADER_BYTES)
            found: dict[str, Any] = fastavro.schemaless_reader(source, self._schema)
        except (Malformed, ValueError, LookupError, EOFError):
            return None
        return found


def _as_it_is(c: Column) -> bool:
    inner = c.reader.type.required
    if inner is None:
        return False
    if inner.kind in {"array", "record"}:
        return inner is c.reader.type and isinstance(c.dtype, pl.List | pl.Struct) and _bare(inner)
    return c.dtype in _DTYPES.get(inner.logical or inner.kind, ())


def _bare(t: Type) -> bool:
    """Whether a type inside another is plain all the way down."""
    inner = t.required
    if inner is None or inner.logical:
        return False
    match inner.kind:
        case "array":
            return inner.items is not None and _bare(inner.items)
        case "record":
            return inner is t and all(_bare(field.type) for field in inner.fields)
    return inner.kind in _DTYPES
