"""Many record values as one Avro object container, read by Polars in one call, guarded.

    block  = lead + value + (tail + lead) + value + ... + value + tail
    schema = {guard: double, fields..., end: double}

A value starts with Confluent's five header bytes, so `lead` (3 random bytes) and the header are
eight bytes that Avro reads as one double, and `tail` (8 random bytes) is another. Nothing is
sliced, and both are compared as integers. The bytes are drawn for every call: a record cannot
know them, so it cannot imitate a border. If every row shows both guards and there are as many
rows as values, then as many borders were met as were written, each in its turn: every row is
exactly its own value's bytes. Doubles cost half of what `fixed` columns cost in Polars.

What Polars reads carelessly is declared as something it reads exactly (found with Polars 2.1):

- `int`, dates and times as `long`: an `int` of 33 bits wraps silently, times become null;
- `enum` as `long`: an index of 2^32 wraps, a nullable enum panics;
- `boolean` as `fixed(1)`: the byte 2 reads as false;
- named types in full at each place: references are refused.

Rust panics reach Python as `PanicException`, which is a `BaseException`.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import polars as pl
from polars.exceptions import PanicException

from streams.runtime.avro.schema import Type

HEADER_BYTES = 5
_LEAD, _TAIL = 3, 8
_SYNC = b"headrace-columns"
_GUARD, _END = "guard", "end"


class Unreadable(ValueError):
    """The values do not decode as one block; at least one of them is bad."""


def varint(number: int) -> bytes:
    """Avro's zigzag variable-length `long`."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def column(position: int) -> str:
    """Name of the container's column of the writer's field at that position."""
    return f"f{position}"


@dataclass(frozen=True)
class Container:
    """Reads values of one writer schema. `preamble` is the container header, once per schema."""

    preamble: bytes
    columns: list[str]

    @classmethod
    def of(cls, writer: Type, positions: Sequence[int]) -> Container:
        """For the writer's record, reading only the fields at those positions."""
        serial = count()
        fields = [
            {"name": _GUARD, "type": "double"},
            *(
                {"name": column(i), "type": _declared(f.type, serial)}
                for i, f in enumerate(writer.fields)
            ),
            {"name": _END, "type": "double"},
        ]
        schema = json.dumps({"type": "record", "name": "Row", "fields": fields}).encode()
        meta = ((b"avro.schema", schema), (b"avro.codec", b"null"))
        entries = b"".join(varint(len(part)) + part for pair in meta for part in pair)
        preamble = b"Obj\x01" + varint(len(meta)) + entries + b"\x00" + _SYNC
        return cls(preamble, [_GUARD, *map(column, positions), _END])

    def read(self, values: Sequence[bytes], header: bytes) -> pl.DataFrame:
        """One row per value, or `Unreadable`; every value must begin with `header`."""
        noise = os.urandom(_LEAD + _TAIL)
        lead, tail = noise[:_LEAD], noise[_LEAD:]
        body = (tail + lead).join(values)
        size = varint(len(values)) + varint(_LEAD + len(body) + _TAIL)
        block = b"".join((self.preamble, size, lead, body, tail, _SYNC))
        try:
            frame = pl.read_avro(io.BytesIO(block), columns=self.columns)
        except (Exception, PanicException) as error:
            raise Unreadable(type(error).__name__) from error
        if frame.height != len(values):
            raise Unreadable("row count")
        if not (_is(frame[_GUARD], lead + header) and _is(frame[_END], tail)):
            raise Unreadable("a record is too long or too short")
        return frame.drop(_GUARD, _END)


def _is(guard: pl.Series, expected: bytes) -> bool:
    bits = guard.to_numpy().view("<u8")
    return bool((bits == int.from_bytes(expected, "little")).all())


def _declared(t: Type, serial: count[int]) -> Any:
    """How the container declares a type: the same bytes, read without loss."""
    declared: Any = t.kind
    match t.kind:
        case "int" | "enum":
            declared = "long"
        case "boolean":
            declared = {"type": "fixed", "name": f"Boolean{next(serial)}", "size": 1}
        case "fixed":
            declared = {"type": "fixed", "name": f"Fixed{next(serial)}", "size": t.size}
        case "union":
            declared = [_declared(branch, serial) for branch in t.branches]
        case "array" if t.items:
            declared = {"type": "array", "items": _declared(t.items, serial)}
        case "record":
            name = f"Record{next(serial)}"
            fields = [{"name": f.name, "type": _declared(f.type, serial)} for f in t.fields]
            declared = {"type": "record", "name": name, "fields": fields}
    return declared


def readable(t: Type) -> bool:
    """Whether Polars reads the type without loss; otherwise its records go row by row."""
    match t.kind:
        case "union":
            inner = t.required
            return inner is not None and readable(inner)
        case "array":
            return t.items is not None and _exact(t.items)
        case "record":
            return bool(t.fields) and all(_exact(f.type) for f in t.fields)
        case "fixed":
            return t.size > 0 and not t.logical
        case "map" | "null":
            return False
    return t.logical != "decimal"


def _exact(t: Type) -> bool:
    """Whether a type inside an array or a record needs no check of its values at all."""
    if t.kind in {"long", "float", "double", "bytes", "string"}:
        return not t.logical
    return t.kind in {"array", "record", "fixed"} and readable(t)
