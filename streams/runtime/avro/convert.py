"""Raw columns to the reader's dtypes: first which rows are bad, then casts that cannot fail.

Raw means as the container or fastavro gives it, without logical types: integers as Int64.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import polars as pl
from polars.exceptions import PanicException

from streams.runtime.avro import nested
from streams.runtime.avro.plan import Column
from streams.runtime.avro.schema import Type

_NATIVE: Mapping[str, tuple[Any, Any]] = {
    "date": (pl.Int32, pl.Date),
    "time-millis": (pl.Datetime("ms"), pl.Time),
    "time-micros": (pl.Datetime("us"), pl.Time),
    "timestamp-millis": (pl.Int64, pl.Datetime("ms", "UTC")),
    "timestamp-micros": (pl.Int64, pl.Datetime("us", "UTC")),
    "timestamp-nanos": (pl.Int64, pl.Datetime("ns", "UTC")),
    "local-timestamp-millis": (pl.Int64, pl.Datetime("ms")),
    "local-timestamp-micros": (pl.Int64, pl.Datetime("us")),
    "local-timestamp-nanos": (pl.Int64, pl.Datetime("ns")),
}
"""The two casts from a raw integer to what the logical type means."""

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


_SAMPLES = {
    "boolean": False,
    "int": 0,
    "long": 0,
    "float": 0.0,
    "double": 0.0,
    "bytes": b"",
    "string": "",
    "null": None,
}


def bad_rows(raw: pl.Series, c: Column) -> pl.Series | None:
    """True for each row whose value the column cannot take; None where every row is good."""
    masks = [_nulls(raw, c), _outside(raw, c), _misread_bytes(raw, c), _inside(raw, c)]
    found = [mask.fill_null(value=False) for mask in masks if mask is not None]
    if not found:
        return None
    bad = functools.reduce(operator.or_, found)
    return bad if bad.any() else None


def _nulls(raw: pl.Series, c: Column) -> pl.Series | None:
    return raw.is_null() if not c.nullable and raw.null_count() else None


def _outside(raw: pl.Series, c: Column) -> pl.Series | None:
    """Integers out of range, and indexes that are no symbol of the reader's enum."""
    if raw.dtype != pl.Int64:
        return None
    bounds = c.bounds
    if c.symbols is not None:
        if None in c.symbols:
            return ~raw.is_in([i for i, symbol in enumerate(c.symbols) if symbol is not None])
        bounds = (0, len(c.symbols) - 1)
    if bounds is None or not raw.len() - raw.null_count():
        return None
    low, high = bounds
    if low <= int(str(raw.min())) and int(str(raw.max())) <= high:
        return None
    return ~raw.is_between(low, high)


def _misread_bytes(raw: pl.Series, c: Column) -> pl.Series | None:
    if raw.dtype != pl.Binary or c.reader.type.required is None:
        return None
    match c.reader.type.required.kind:
        case "boolean":
            return ~raw.is_in([nested.FALSE, nested.TRUE])
        case "string":
            return _not_utf8(raw)
    return None


def _inside(raw: pl.Series, c: Column) -> pl.Series | None:
    """Bad values in an array or record, where it comes from the container."""
    if c.writer is None or not raw.dtype.is_nested():
        return None
    return pl.Series(nested.bad(raw, c.writer))


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


def cast(raw: pl.Series, c: Column) -> pl.Series:
    """The column in the reader's dtype; bad rows must be gone."""
    read = c.reader.type.required or c.reader.type
    if read.kind == "boolean" and raw.dtype == pl.Binary:
        raw = raw == pl.Series([nested.TRUE])
    elif c.symbols is not None and raw.dtype == pl.Int64:
        raw = pl.Series(c.symbols, dtype=pl.String).gather(raw)
    elif c.writer is not None and raw.dtype.is_nested():
        raw = nested.plain(raw, c.writer)
    for step in () if raw.dtype == pl.Object else (*_steps(read), c.dtype):
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


def check_dtype(c: Column, record: str) -> None:
    """`TypeError` if the dtype cannot hold the field: the catalogue's fault, not poison."""
    if c.dtype in {pl.Object, pl.String}:
        return
    try:
        cast(from_values([_sample(c.reader.type)], c), c)
    except (Exception, PanicException) as error:
        raise TypeError(f"{record}: field {c.name} cannot be {c.dtype}") from error


def _sample(t: Type) -> Any:
    """Some value of the type."""
    inner = t.required
    match inner:
        case None:
            return None
        case Type(kind="array", items=Type() as items):
            return [_sample(items)]
        case Type(kind="map", items=Type() as values):
            return {"": _sample(values)}
        case Type(kind="record", fields=fields):
            return {f.name: _sample(f.type) for f in fields}
        case Type(kind="enum", symbols=symbols):
            return symbols[0]
    return bytes(inner.size) if inner.kind == "fixed" else _SAMPLES[inner.kind]


def _steps(t: Type) -> tuple[Any, ...]:
    """The dtypes a raw column passes on its way: logical types inside it need two casts."""
    logical = t.logical in _NATIVE or t.kind in {"array", "record"}
    return (_native(t, 0), _native(t, 1)) if logical else ()


def _native(t: Type, step: int) -> Any:
    inner = t.required or t
    match inner:
        case Type(kind="array", items=Type() as items):
            return pl.List(_native(items, step))
        case Type(kind="record", fields=fields):
            return pl.Struct({f.name: _native(f.type, step) for f in fields})
    return _NATIVE[inner.logical][step] if inner.logical in _NATIVE else _raw_dtype(inner)


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
