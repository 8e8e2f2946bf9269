"""Which JSON value is which column: the type that msgspec holds a field to, and its column.

| Avro type of the field          | JSON value                                                    |
|---------------------------------|---------------------------------------------------------------|
| string                          | a string                                                      |
| boolean                         | `true`, `false`                                               |
| int, long, timestamps, dates    | an integer, or a string of one in its shortest form ("-12")   |
| float, double                   | a number                                                      |
| enum                            | a string that is one of its symbols                           |
| union of null and one of these  | that, or `null`                                               |

An integer may be a string because 64 bits do not survive every JSON reader: so Protocol Buffers
writes them ("JSON Mapping", int64), and so do many producers. `1.0` is no integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import polars as pl

from streams.runtime.avro.schema import Field

INTEGERS = frozenset({"int", "long"})
_LOGICAL = frozenset({"", "date", "timestamp", "local"})
_PLAIN: dict[str, Any] = {"string": str, "boolean": bool, "float": float, "double": float}


@dataclass(frozen=True)
class JsonField:
    """One column. `TypeError` where JSON has no plain value for its type (bytes, arrays, maps,
    records, other unions).
    """

    field: Field
    dtype: Any

    def __post_init__(self) -> None:
        """Refuse what cannot be read before anything is."""
        self._required_type()

    @property
    def name(self) -> str:
        """Name in the record and of the column."""
        return self.field.name

    @property
    def definition(self) -> tuple[Any, ...]:
        """The field as `msgspec.defstruct` takes it; it may be missing if the schema has a
        default.
        """
        kind = self._required_type()
        nullable = self.field.type.kind == "union"
        typed = kind | None if nullable else kind
        return (self.name, typed, self.field.default) if self.field.optional else (self.name, typed)

    def column(self, values: Sequence[Any]) -> tuple[pl.Series, pl.Series | None]:
        """The column, and a mask of the rows whose value is not of its type (None: all are)."""
        if not self._integer:
            return pl.Series(self.name, values, self.dtype), None
        texts = _texts(values)
        if texts is None:
            return pl.Series(self.name, values, pl.Int64).cast(self.dtype), None
        low, high = self._bounds
        numbers = texts.cast(pl.Int64, strict=False)
        good = (numbers.cast(pl.String) == texts) & numbers.is_between(low, high)
        bad = texts.is_not_null() & ~good.fill_null(value=False)
        if bad.any():
            numbers = numbers.set(bad, None)
            return numbers.cast(self.dtype).alias(self.name), bad
        return numbers.cast(self.dtype).alias(self.name), None

    @property
    def _integer(self) -> bool:
        required = self.field.type.required
        return required is not None and required.kind in INTEGERS

    @property
    def _bounds(self) -> tuple[int, int]:
        required = self.field.type.required
        assert required is not None
        return required.bounds

    def _required_type(self) -> Any:
        required = self.field.type.required
        if required is None:
            raise TypeError(f"field {self.name}: no JSON value for a union of several types")
        if required.kind in INTEGERS and required.logical.partition("-")[0] in _LOGICAL:
            low, high = required.bounds
            return Annotated[int, msgspec.Meta(ge=low, le=high)] | str
        if required.kind == "enum":
            return Literal[required.symbols]
        if required.kind in _PLAIN and not required.logical:
            return _PLAIN[required.kind]
        raise TypeError(f"field {self.name}: no JSON value for {required.logical or required.kind}")


def _texts(values: Sequence[Any]) -> pl.Series | None:
    """Integers as text, if any of them came as text: most topics have one form only."""
    try:
        return pl.Series(values=values, dtype=pl.String)
    except TypeError:
        pass
    if not any(value.__class__ is str for value in values):
        return None
    return pl.Series(values=[v if v is None else str(v) for v in values], dtype=pl.String)
