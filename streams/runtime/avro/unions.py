"""Checks the branch numbers of nullable values, which Polars does not.

For a union of null and T, Polars takes every number other than null's for T's: a record with
branch 2 or -1 would come out as if it were good. The number's place in the record follows from
the widths of the fields before it, so it can be looked up for all rows at once. That holds for
canonical encodings; a row that is encoded otherwise (padded integers, arrays in sized blocks) is
reported too, and the row path decides. Needs all fields before the last checked union.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.avro.schema import Type

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_FIXED_WIDTHS = {"float": 4, "double": 8, "boolean": 1}


def unlike(block: bytes, starts: Ints, fields: Sequence[tuple[Type, pl.Series]]) -> Mask:
    """True for each row with a union number that is not what its value says.

    `starts` are the rows' first body bytes in `block`; `fields` are the record's types with
    their raw columns, from the first field to the last nullable one.
    """
    data = np.frombuffer(block, np.uint8)
    wrong = np.zeros(len(starts), np.bool_)
    for t, column in fields:
        wrong |= _wrong(data, starts, column, t)
        starts = starts + width(column, t)
    return wrong


def holds_union(t: Type) -> bool:
    """Whether a value of the type has a branch number in it; not for recursive types."""
    inner = [t.items] if t.items else [f.type for f in t.fields]
    return t.kind == "union" or any(map(holds_union, inner))


def _wrong(data: Bytes, starts: Ints, column: pl.Series, t: Type) -> Mask:
    """True for each value, beginning at `starts`, that holds a wrong branch number."""
    wrong = np.zeros(len(starts), np.bool_)
    if not holds_union(t):
        return wrong
    match t.kind:
        case "union" if t.required:
            null = next(i for i, branch in enumerate(t.branches) if branch.kind == "null")
            absent = column.is_null().to_numpy()
            wrong |= data[starts] != np.where(absent, 2 * null, 2 * (1 - null))
            wrong[~absent] |= _wrong(data, starts[~absent] + 1, column.drop_nulls(), t.required)
        case "record":
            for f in t.fields:
                child = column.struct.field(f.name)
                wrong |= _wrong(data, starts, child, f.type)
                starts = starts + width(child, f.type)
        case "array" if t.items:
            lists = Lists.of(column)
            each = np.broadcast_to(width(lists.items, t.items), (len(lists.items),))
            before = np.cumsum(each) - each
            head = starts[lists.filled] + _varint_width(lists.counts)
            inside = np.repeat(head - before[lists.borders], lists.counts) + before
            wrong[lists.filled] |= lists.any(_wrong(data, inside, lists.items, t.items))
    return wrong


@dataclass(frozen=True)
class Lists:
    """A list column taken apart: `counts` items in each of the `filled` rows, and all `items`."""

    filled: Mask
    counts: Ints
    items: pl.Series

    @classmethod
    def of(cls, column: pl.Series) -> Lists:
        """Null and empty lists are not filled."""
        counts = _ints(column.list.len())
        filled = counts > 0
        return cls(filled, counts[filled], column.filter(pl.Series(filled)).explode())

    @property
    def borders(self) -> Ints:
        """Index in `items` of each filled row's first."""
        return np.cumsum(self.counts) - self.counts

    def any(self, items: Mask) -> Mask:
        """Whether any item is true, for each filled row."""
        return np.logical_or.reduceat(items, self.borders) if len(items) else items


def width(column: pl.Series, t: Type) -> Ints | int:
    """Bytes that each value takes in canonical encoding; one number where all take the same."""
    inner = t.required or t
    if t.kind == "union":
        return 1 + np.where(column.is_null().to_numpy(), 0, width(column, inner))
    match inner.kind:
        case "boolean" | "float" | "double" | "fixed":
            return inner.size or _FIXED_WIDTHS[inner.kind]
        case "record":
            parts = [width(column.struct.field(f.name), f.type) for f in inner.fields]
            return functools.reduce(operator.add, parts)
        case "array":
            return _array_width(column, inner)
        case "string" | "bytes":
            text = inner.kind == "string"
            length = _ints(column.str.len_bytes() if text else column.bin.size())
            return length + _varint_width(length)
    return _varint_width(_ints(column))


def _array_width(column: pl.Series, t: Type) -> Ints:
    total = np.ones(len(column), np.int64)
    lists = Lists.of(column)
    if t.items is not None and len(lists.items):
        each = np.broadcast_to(width(lists.items, t.items), (len(lists.items),))
        sums: Ints = np.add.reduceat(each, lists.borders)
        total[lists.filled] = 1 + _varint_width(lists.counts) + sums
    return total


def _ints(column: pl.Series) -> Ints:
    return column.fill_null(0).to_numpy().astype(np.int64, copy=False)


def _varint_width(numbers: Ints) -> Ints | int:
    """Bytes of a zigzag varint: seven bits each, one bit of the first for the sign."""
    magnitude = numbers ^ (numbers >> 63)
    most = int(magnitude.max(initial=0))
    if most < 1 << 6:
        return 1
    widths: Ints = np.ones(len(numbers), np.int64)
    for bits in range(6, 63, 7):
        if most < 1 << bits:
            break
        widths += (magnitude >= 1 << bits).astype(np.int64)
    return widths
