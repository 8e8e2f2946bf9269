"""A strict walk over one record's bytes: says what is wrong and where, and bounds the work.

fastavro forgives what it should not (an enum or union index of -1 counts from the end, the byte 2
is true, an `int` may have 64 bits, bytes after the record are ignored) and builds whatever a block
count asks for: five bytes can mean three million nulls. So the row path walks first, then decodes.
Integers are taken as fastavro and Polars take them: at most ten bytes, modulo 2^64.
"""

from __future__ import annotations

from collections.abc import Callable

from streams.runtime.avro.schema import Type

MAX_DEPTH = 64
MAX_EMPTY_ITEMS = 10_000
"""Items of no bytes (nulls, empty records) that one record may hold in all its arrays."""

_VARINT_BYTES = 10
_WIDTHS = {"float": 4, "double": 8}


class Malformed(ValueError):
    """The bytes are not a record of the schema; the text names the field and what is wrong."""


class _Walk:
    """Position in one record's bytes."""

    __slots__ = ("data", "empty_items", "end", "path", "position")

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position
        self.end = len(data)
        self.path: list[str] = []
        self.empty_items = 0

    def fail(self, what: str) -> Malformed:
        where = ".".join(self.path)
        return Malformed(f"field {where}: {what}" if where else what)

    def skip(self, size: int) -> None:
        self.position += size
        if self.position > self.end:
            raise Malformed("body ends early")

    def long(self) -> int:
        number = shift = 0
        for _ in range(_VARINT_BYTES):
            if self.position >= self.end:
                raise Malformed("body ends early")
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                number &= 0xFFFF_FFFF_FFFF_FFFF
                return (number >> 1) ^ -(number & 1)
            shift += 7
        raise self.fail("an integer of more than 10 bytes")

    def value(self, t: Type, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Malformed(f"nested deeper than {MAX_DEPTH}")
        _WALKERS[t.kind](self, t, depth)

    def number(self, t: Type, _depth: int) -> None:
        low, high = t.bounds
        if not low <= self.long() <= high:
            raise self.fail("not a symbol" if t.kind == "enum" else "out of range")

    def boolean(self, _t: Type, _depth: int) -> None:
        self.skip(1)
        if self.data[self.position - 1] > 1:
            raise self.fail("a boolean that is neither 0 nor 1")

    def scalar(self, t: Type, _depth: int) -> None:
        self.skip(t.size or _WIDTHS.get(t.kind, 0))

    def text(self, t: Type, _depth: int) -> None:
        size = self.long()
        if size < 0:
            raise self.fail("a negative length")
        start = self.position
        self.skip(size)
        if t.kind == "string":
            try:
                self.data[start : self.position].decode()
            except UnicodeDecodeError:
                raise self.fail("not UTF-8") from None
        if t.logical == "decimal" and size > 64:
            raise self.fail("a decimal of more than 64 bytes")

    def union(self, t: Type, depth: int) -> None:
        index = self.long()
        if not 0 <= index < len(t.branches):
            raise self.fail("not a branch of the union")
        self.value(t.branches[index], depth + 1)

    def record(self, t: Type, depth: int) -> None:
        for field in t.fields:
            self.path.append(field.name)
            self.value(field.type, depth + 1)
            self.path.pop()

    def items(self, t: Type, depth: int) -> None:
        if t.items is None:
            raise self.fail("no item type")
        while count := self.long():
            if count < 0:
                count = -count
                if self.long() < 0:
                    raise self.fail("a negative block size")
            for _ in range(count):
                before = self.position
                if t.kind == "map":
                    self.text(_STRING, depth)
                self.value(t.items, depth + 1)
                if self.position == before:
                    self._count_empty()

    def _count_empty(self) -> None:
        self.empty_items += 1
        if self.empty_items > MAX_EMPTY_ITEMS:
            raise self.fail(f"more than {MAX_EMPTY_ITEMS} empty items")


_STRING = Type("string")
_WALKERS: dict[str, Callable[[_Walk, Type, int], None]] = {
    "null": _Walk.scalar,
    "boolean": _Walk.boolean,
    "int": _Walk.number,
    "long": _Walk.number,
    "enum": _Walk.number,
    "float": _Walk.scalar,
    "double": _Walk.scalar,
    "fixed": _Walk.scalar,
    "bytes": _Walk.text,
    "string": _Walk.text,
    "union": _Walk.union,
    "array": _Walk.items,
    "map": _Walk.items,
    "record": _Walk.record,
}


def check(writer: Type, value: bytes, start: int) -> None:
    """Raise `Malformed` unless the bytes from `start` are exactly one record."""
    walk = _Walk(value, start)
    walk.value(writer, 0)
    left = len(value) - walk.position
    if left:
        raise Malformed(f"{left} bytes after the record")
