"""How one writer schema becomes the frame of one reader record: decided once, used per batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from streams.runtime.avro.container import Container, column, readable
from streams.runtime.avro.registry import WriterSchema
from streams.runtime.avro.schema import INT64, Field, Type, parse, same
from streams.runtime.topic import RecordType

_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "double": {"double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
    "boolean": {"boolean"},
}
_INTEGERS = frozenset({"int", "long"})


class Unresolvable(ValueError):
    """No record of this writer schema can become the reader's record."""


@dataclass(frozen=True)
class Column:
    """One column of the result: `reader` field, and `position` in the writer's record.

    `position` None means that the writer does not have it: the reader's default fills it.
    `writer` is None there, and where fastavro has already resolved the value.
    """

    reader: Field
    dtype: Any
    position: int | None
    writer: Type | None

    @property
    def name(self) -> str:
        """Name in the result."""
        return self.reader.name

    @cached_property
    def bounds(self) -> tuple[int, int] | None:
        """Range that an integer must be in for both schemas; None where there is no limit."""
        ends = [t.required for t in (self.reader.type, self.writer) if t is not None]
        ranges = [t.bounds for t in ends if t is not None and t.kind in _INTEGERS]
        low = max((low for low, _ in ranges), default=INT64[0])
        high = min((high for _, high in ranges), default=INT64[1])
        return None if (low, high) == INT64 else (low, high)

    @cached_property
    def nullable(self) -> bool:
        """Whether the reader takes null."""
        return any(t.kind == "null" for t in (self.reader.type, *self.reader.type.branches))

    @cached_property
    def symbols(self) -> list[str | None] | None:
        """What each index of a written enum is to the reader, None where it is nothing.

        None as a whole where the column was not written as an enum.
        """
        read = self.reader.type.required
        written = self.writer.required if self.writer else None
        if read is None or written is None or written.kind != "enum":
            return None
        return [s if s in read.symbols else read.default for s in written.symbols]


@dataclass(frozen=True)
class Plan:
    """`container` is None where records go through fastavro row by row."""

    writer: WriterSchema
    record: RecordType
    columns: tuple[Column, ...]
    container: Container | None

    @property
    def header(self) -> bytes:
        """The five bytes every value of this schema begins with."""
        return b"\x00" + self.writer.schema_id.to_bytes(4, "big")


def plan(writer: WriterSchema, record: RecordType, names: Sequence[str] | None) -> Plan:
    """Match the reader's fields to the writer's by name, then by alias.

    `names` picks columns; they come in schema order. `Unresolvable` where a field that the
    writer lacks has no default, or one unit of time would be read as another.
    """
    reader = parse(record.schema)
    written = writer.type.fields
    positions = {f.name: i for i, f in enumerate(written)}
    columns = tuple(
        _column(field, record.dtypes[field.name], writer.type, positions)
        for field in reader.fields
        if names is None or field.name in names
    )
    container = None
    if all(readable(f.type) for f in written) and all(map(_columnar, columns)):
        container = Container.of(
            writer.type, (c.position for c in columns if c.position is not None)
        )
    return Plan(writer, record, columns, container)


def _column(field: Field, dtype: Any, writer: Type, positions: dict[str, int]) -> Column:
    found = next((positions[n] for n in (field.name, *field.aliases) if n in positions), None)
    if found is None:
        if not field.optional:
            raise Unresolvable(f"field {field.name}: not written, and without a default")
        return Column(field, dtype, None, None)
    written = writer.fields[found].type
    w, r = written.required, field.type.required
    if w and r and w.logical and r.logical and w.logical != r.logical:
        raise Unresolvable(f"field {field.name}: written as {w.logical}, read as {r.logical}")
    return Column(field, dtype, found, written)


def _columnar(c: Column) -> bool:
    """Whether columns can express the step from the written to the read type."""
    if c.dtype == pl.Object:
        return False
    if c.writer is None:
        return True
    w, r = c.writer.required, c.reader.type.required
    if w is None or r is None:
        return False
    if w.kind == r.kind == "enum":
        return True
    if w.kind in _PROMOTIONS:
        return r.kind in _PROMOTIONS[w.kind]
    return same(w, r)


def raw_name(c: Column) -> str:
    """Name of the container's column that feeds a result column."""
    return column(c.position) if c.position is not None else ""
