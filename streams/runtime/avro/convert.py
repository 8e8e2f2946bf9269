"""Raw columns to the reader's dtypes: first which rows are bad, then casts that cannot fail.

Raw means as the container or fastavro gives it, without logical types: integers as Int64.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import polars as pl

from streams.runtime.avro.plan import Column
from streams.runtime.avro.schema import Type

_NATIVE: Mapping[str, Sequence[Any]] = {
    "date": (pl.Int32, pl.Date),
    "time-millis": (pl.Datetime("ms"), pl.Time),
    "time-micros": (pl.Datetime("us"), pl.Time),
    "timestamp-millis": (pl.Datetime("ms", "UTC"),),
    "timestamp-micros": (pl.Datetime("us", "UTC"),),
    "timestamp-nanos": (pl.Datetime("ns", "UTC"),),
    "local-timestamp-millis": (pl.Datetime("ms"),),
    "local-timestamp-micros": (pl.Datetime("us"),),
    "local-timestamp-nanos": (pl.Datetime("ns"),),
}
"""The casts from a raw integer to what the logical type means."""

_PRIMITIVE = {
    "boolean": pl.Boolean,
    "int": pl.Int64,
    "long": pl.Int64,
    "float": pl.Float32,
    "double": pl.Float64,
    "bytes": pl.Binary,
    "fixed": pl.Binary,
    "string": pl.String,
    "enum": pl.String,
    "null": pl.Null,
}


def bad_rows(raw: pl.Series, c: Column) -> pl.Series | None:
    """True for each row whose value the column cannot take; None where every row is good."""
    masks = [_nulls(raw, c), _outside(raw, c)]
    if raw.dtype == pl.Binary and c.reader.type.required and c.writer is not None:
        if c.reader.type.required.kind == "boolean":
            masks.append(~raw.is_in([b"\x00", b"\x01"]))
        elif c.reader.type.required.kind == "string":
            masks.append(_not_utf8(raw))
    found = [mask.fill_null(value=False) for mask in masks if mask is not None]
    if not found:
        return None
    bad = found[0]
    for mask in found[1:]:
        bad = bad | mask
    return bad if bad.any() else None


def _nulls(raw: pl.Series, c: Column) -> pl.Series | None:
    kinds = {t.kind for t in (c.reader.type, *c.reader.type.branches)}
    return raw.is_null() if "null" not in kinds and raw.null_count() else None


def _outside(raw: pl.Series, c: Column) -> pl.Series | None:
    if raw.dtype != pl.Int64:
        return None
    written = c.writer.required if c.writer else None
    if written and written.kind == "enum":
        return _not_symbols(raw, written, c.reader.type)
    if c.bounds is None:
        return None
    low, high = c.bounds
    least, most = raw.min(), raw.max()
    if least is None or (low <= int(str(least)) and int(str(most)) <= high):
        return None
    return ~raw.is_between(low, high)


def _not_symbols(raw: pl.Series, written: Type, read: Type) -> pl.Series:
    known = [i for i, symbol in enumerate(_symbols(written, read)) if symbol is not None]
    return ~raw.is_in(known)


def _not_utf8(raw: pl.Series) -> pl.Series | None:
    try:
        raw.cast(pl.String)
    except pl.exceptions.ComputeError:
        return pl.Series([not _is_utf8(value) for value in raw.to_list()])
    return None


def _is_utf8(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def _symbols(written: Type, read: Type) -> list[str | None]:
    """What each index of the written enum is to the reader; None where it is nothing."""
    target = read.required or read
    return [s if s in target.symbols else target.default for s in written.symbols]


def cast(raw: pl.Series, c: Column) -> pl.Series:
    """The column in the reader's dtype; bad rows must be gone."""
    read = c.reader.type.required or c.reader.type
    if read.kind == "boolean" and raw.dtype == pl.Binary:
        raw = raw == pl.Series([b"\x01"])
    elif read.kind == "enum" and raw.dtype == pl.Int64 and c.writer is not None:
        symbols = pl.Series(_symbols(c.writer.required or c.writer, read), dtype=pl.String)
        raw = symbols.gather(raw)
    for step in (*_NATIVE.get(read.logical, ()), c.dtype):
        if raw.dtype != step:
            raw = raw.cast(step)
    return raw.alias(c.name)


def default_column(c: Column, height: int) -> pl.Series:
    """The reader's default, once per row."""
    return cast(from_values([c.reader.default], c), c).new_from_index(0, height)


def from_values(values: Sequence[Any], c: Column) -> pl.Series:
    """A raw column from fastavro's values (read without logical types).

    Columns of `pl.Object` keep Python values; a record that is one of several in a union has its
    full name under `-type`, which fastavro takes back. A map inside a native column is a list of
    `{key, value}`; a container in a `pl.String` column is JSON.
    """
    t = c.reader.type
    if c.dtype == pl.Object:
        return pl.Series(c.name, [_tagged(v) for v in values], dtype=pl.Object)
    if c.dtype == pl.String and (t.required or t).kind in {"union", "map", "record", "array"}:
        texts = [None if v is None else json.dumps(_tagged(v), default=_text) for v in values]
        return pl.Series(c.name, texts, dtype=pl.String)
    return pl.Series(c.name, [_plain(v, t) for v in values], dtype=_raw_dtype(t), strict=True)


def _raw_dtype(t: Type) -> Any:
    inner = t.required
    dtype: Any = pl.Object
    match inner:
        case Type(kind="array", items=Type() as items):
            dtype = pl.List(_raw_dtype(items))
        case Type(kind="map", items=Type() as values):
            dtype = pl.List(pl.Struct({"key": pl.String, "value": _raw_dtype(values)}))
        case Type(kind="record", fields=fields):
            dtype = pl.Struct({f.name: _raw_dtype(f.type) for f in fields})
        case Type(logical="decimal", precision=precision, scale=scale):
            dtype = pl.Decimal(precision, scale)
        case Type(logical="uuid"):
            dtype = pl.String
        case Type(kind=kind):
            dtype = _PRIMITIVE[kind]
    return dtype


def _plain(value: Any, t: Type) -> Any:
    """fastavro's value, or a default from the schema's JSON, as `_raw_dtype` takes it."""
    inner = t.required
    if isinstance(value, str) and inner and inner.kind in {"bytes", "fixed"}:
        value = value.encode("latin-1")  # A default in JSON: one character per byte.
    plain: Any = value
    match inner:
        case _ if value is None:
            plain = None
        case Type(kind="record", fields=fields):
            plain = {f.name: _plain(value[f.name], f.type) for f in fields}
        case Type(kind="array", items=Type() as items):
            plain = [_plain(item, items) for item in value]
        case Type(kind="map", items=Type() as items):
            plain = [{"key": k, "value": _plain(v, items)} for k, v in value.items()]
        case Type(logical="decimal", scale=scale):
            plain = Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
        case Type(logical="uuid", kind="fixed"):
            plain = str(UUID(bytes=value))
    return plain


def _tagged(value: Any) -> Any:
    match value:
        case (str(name), dict(record)):
            return {"-type": name, **_tagged(record)}
        case dict():
            return {key: _tagged(item) for key, item in value.items()}
        case list():
            return [_tagged(item) for item in value]
    return value


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
