"""Values inside arrays and records, as the container gives them: which are bad, and what they mean.

The counterpart for whole columns is `convert`, which also resolves the reader's schema; inside,
written and read types are the same.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa

from streams.runtime.avro.schema import INT64, Type
from streams.runtime.avro.unions import Lists, Mask

TRUE, FALSE = b"\x01", b"\x00"


def bad(column: pl.Series, t: Type) -> Mask:
    """True for each value that holds something out of range."""
    inner = t.required or t
    wrong = np.zeros(len(column), np.bool_)
    match inner.kind:
        case "int" | "long" | "enum" if inner.bounds != INT64:
            wrong = _mask(~column.is_between(*inner.bounds))
        case "boolean":
            wrong = _mask(~column.is_in([FALSE, TRUE]))
        case "record":
            for f in inner.fields:
                wrong |= bad(column.struct.field(f.name), f.type)
        case "array" if inner.items:
            lists = Lists.of(column)
            wrong[lists.filled] = lists.any(bad(lists.items, inner.items))
    return wrong


def plain(column: pl.Series, t: Type) -> pl.Series:
    """Enums as text and booleans as such; all else as it is. Nothing may be bad."""
    inner = t.required or t
    if not _coded(inner):
        return column
    match inner.kind:
        case "enum":
            return pl.Series(inner.symbols, dtype=pl.String).gather(column)
        case "record":
            fields = [
                plain(column.struct.field(f.name), f.type).alias(f.name) for f in inner.fields
            ]
            struct = pl.DataFrame(fields).to_struct()
            if column.null_count():
                struct = struct.to_frame("s").select(pl.when(column.is_not_null()).then("s"))["s"]
            return struct
        case "array" if inner.items:
            items = plain(Lists.of(column).items, inner.items)
            return _relisted(column, items)
    return column == pl.Series([TRUE])


def _relisted(column: pl.Series, items: pl.Series) -> pl.Series:
    """Lists of the same lengths over other items."""
    counts = column.list.len().fill_null(0).to_numpy()
    nulls = np.append(column.is_null().to_numpy(), np.False_)
    offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int64(), mask=nulls)
    made = pl.from_arrow(pa.LargeListArray.from_arrays(offsets, items.to_arrow()))
    if not isinstance(made, pl.Series):
        raise TypeError(f"a list array became {type(made).__name__}")
    return made


def _coded(t: Type) -> bool:
    inner = t.required or t
    below = [inner.items] if inner.items else [f.type for f in inner.fields]
    return inner.kind in {"enum", "boolean"} or any(map(_coded, below))


def _mask(series: pl.Series) -> Mask:
    return series.fill_null(value=False).to_numpy()
