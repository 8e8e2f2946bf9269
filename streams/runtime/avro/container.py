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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import polars as pl
from polars.exceptions import PanicException

from streams.runtime.avro.schema import Type
from streams.runtime.avro.unions import holds_union, unlike

HEADER_BYTES = 5
_LEAD, _TAIL = 3, 8
GAP_BYTES = _LEAD + _TAIL
_SYNC = b"headrace-columns"
_GUARD, _END = "guard", "end"


Suspects = pl.Series | None


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
    """Reads values of one writer schema.

    `preamble` is the container header, `positions` the fields read, `checked` how many fields
    from the first hold all nullable ones that are read (0: there are none).
    """

    preamble: bytes
    writer: Type
    positions: tuple[int, ...]
    checked: int

    @classmethod
    def of(cls, writer: Type, wanted: Iterable[int]) -> Container:
        """For the writer's record, reading at least the fields at those positions."""
        fields = writer.fields
        # A skipped array is skipped by the byte size it claims, so arrays are always read.
        positions = {*wanted, *(i for i, f in enumerate(fields) if _holds_array(f.type))}
        unions = [i for i in positions if holds_union(fields[i].type)]
        checked = max(unions) + 1 if unions else 0
        return cls(_preamble(writer), writer, tuple(sorted({*positions, *range(checked)})), checked)

    def read(self, values: Sequence[bytes], header: bytes) -> tuple[pl.DataFrame, Suspects]:
        """One row per value, and True for each row that is to be looked at alone (None: none).

        `Unreadable` if the values do not frame; every value must begin with `header`.
        """
        noise = _noise()
        lead, tail = noise[:_LEAD], noise[_LEAD:]
        body = (tail + lead).join(values)
        size = varint(len(values)) + varint(_LEAD + len(body) + _TAIL)
        block = b"".join((self.preamble, size, lead, body, tail, _SYNC))
        try:
            columns = [_GUARD, *map(column, self.positions), _END]
            frame = pl.read_avro(io.BytesIO(block), columns=columns)
        except (Exception, PanicException) as error:
            raise Unreadable(type(error).__name__) from error
        if frame.height != len(values):
            raise Unreadable("row count")
        if not (_is(frame[_GUARD], lead + header) and _is(frame[_END], tail)):
            raise Unreadable("a record is too long or too short")
        if not self.checked:
            return frame, None
        first = len(self.preamble) + len(size) + _LEAD + HEADER_BYTES
        sizes = np.fromiter(map(len, values), np.int64, len(values)) + GAP_BYTES
        starts = first + np.cumsum(sizes) - sizes
        fields = [
            (f.type, frame[column(i)]) for i, f in enumerate(self.writer.fields[: self.checked])
        ]
        wrong = unlike(block, starts, fields)
        return frame, pl.Series(wrong) if wrong.any() else None


def _preamble(writer: Type) -> bytes:
    serial = count()
    fields = [
        {"name": column(i), "type": _declared(f.type, serial)} for i, f in enumerate(writer.fields)
    ]
    guards = ({"name": name, "type": "double"} for name in (_GUARD, _END))
    fields = [next(guards), *fields, next(guards)]
    schema = json.dumps({"type": "record", "name": "Row", "fields": fields}).encode()
    meta = ((b"avro.schema", schema), (b"avro.codec", b"null"))
    entries = b"".join(varint(len(part)) + part for pair in meta for part in pair)
    return b"Obj\x01" + varint(len(meta)) + entries + b"\x00" + _SYNC


def _holds_array(t: Type) -> bool:
    inner = t.required or t
    return inner.kind == "array" or any(_holds_array(f.type) for f in inner.fields)


def _noise() -> bytes:
    return os.urandom(GAP_BYTES)


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


def readable(t: Type, inside: frozenset[int] = frozenset()) -> bool:
    """Whether Polars reads the type without loss; otherwise its records go row by row.

    Not maps, nulls, decimals, unions other than of null and one type, recursive records, and
    what takes no bytes (its count could be anything).
    """
    if id(t) in inside:
        return False
    inside |= {id(t)}
    match t.kind:
        case "union":
            return t.required is not None and readable(t.required, inside)
        case "array":
            return t.items is not None and readable(t.items, inside)
        case "record":
            return bool(t.fields) and all(readable(f.type, inside) for f in t.fields)
        case "fixed":
            return t.size > 0 and not t.logical
    return t.kind not in {"map", "null"} and t.logical != "decimal"
