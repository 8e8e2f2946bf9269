"""Rows as text, the same in every driver: a JSON array without its brackets.

`1700000000000,"c-1"` reads well in a console, keeps integers exact (no doubles: Redis's cjson
rounds above 2**53), is injective, and is made and taken apart without Python per row. Bytes are
base64, instants integers in their unit since 1970. The encoding of a row is the encodings of its
parts joined by a comma.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
import polars as pl

from streams.runtime.sink import ReadModel


def supported(model: ReadModel) -> None:
    """Raise `TypeError` naming the first column whose type has no exact text here, or whose
    place is wrong: floats are no keys, a bucket is a prefix of the key, `time` is an Int64 in it.
    """
    for table in model.tables:
        for column, dtype in table.columns.items():
            if not _exact(dtype):
                raise TypeError(f"{model.name} {table.name}.{column}: {dtype} cannot be stored")
        key = list(getattr(table, "key", getattr(table, "board", {})))
        bucket = list(getattr(table, "bucket", key))
        if key[: len(bucket)] != bucket:
            raise TypeError(f"{model.name} {table.name}: {bucket} is no prefix of {key}")
        if any(table.columns[c].is_float() or table.columns[c].is_nested() for c in key):
            raise TypeError(f"{model.name} {table.name}: floats and lists are no keys")
        if table.time is not None and (
            table.time not in bucket or table.columns[table.time] != pl.Int64
        ):
            raise TypeError(f"{model.name} {table.name}: {table.time} is no Int64 of the bucket")


def _exact(dtype: Any) -> bool:
    if isinstance(dtype, pl.List):
        return dtype.inner not in (pl.List, pl.Binary, pl.Datetime) and _exact(dtype.inner)
    if isinstance(dtype, pl.Datetime):
        return dtype.time_unit in ("ms", "us") and dtype.time_zone == "UTC"
    scalar = (pl.String, pl.Boolean, pl.Binary, pl.Float32, pl.Float64)
    return dtype in scalar or (dtype.is_integer() and dtype not in (pl.Int128, pl.UInt128))


def encoded(frame: pl.DataFrame, columns: Iterable[str]) -> pl.Series:
    """The text of these columns, one string a row; "" when there are no columns."""
    parts = [_text(column, frame.schema[column]) for column in columns]
    if not parts:
        return pl.repeat("", frame.height, dtype=pl.String, eager=True)
    return frame.select(pl.concat_str(parts, separator=",")).to_series()


def _text(column: str, dtype: Any) -> pl.Expr:
    value = pl.col(column)
    if isinstance(dtype, pl.Datetime):
        value = value.to_physical()
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Datetime):
        return value.cast(pl.String).fill_null("null")
    if dtype == pl.Binary:
        value = value.bin.encode("base64")
    json = pl.struct(value.alias("v")).struct.json_encode()
    return json.str.strip_prefix('{"v":').str.strip_suffix("}")


def decoded(texts: Iterable[bytes], schema: Mapping[str, Any]) -> pl.DataFrame:
    """The frame of these rows; `schema` names all columns in the order of the text."""
    lines = orjson.loads(b"[[" + b"],[".join(texts) + b"]]")
    if lines == [[]]:
        return pl.DataFrame(schema=schema)
    plain = {c: _plain(dtype) for c, dtype in schema.items()}
    frame = pl.DataFrame(lines, schema=plain, orient="row")
    binary = [c for c, dtype in schema.items() if dtype == pl.Binary]
    instants = [c for c, dtype in schema.items() if isinstance(dtype, pl.Datetime)]
    return frame.with_columns(
        *(pl.col(c).str.decode("base64") for c in binary),
        *(pl.col(c).cast(schema[c]) for c in instants),
    )


def _plain(dtype: Any) -> Any:
    """The type a value has in the text."""
    if isinstance(dtype, pl.Datetime):
        return pl.Int64
    return pl.String if dtype == pl.Binary else dtype


def plain(dtype: Any) -> bool:
    """Whether a value's text is what JSON writes of it."""
    return bool(dtype.is_integer() or dtype in (pl.String, pl.Boolean))


def text_of(values: Iterable[Any]) -> str:
    """The text of one row of plain values, as `encoded` writes it, without making a frame."""
    return orjson.dumps([*values])[1:-1].decode()


def row_of(text: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    """One row by column, as `decoded` reads it."""
    if all(map(plain, schema.values())):
        return dict(zip(schema, orjson.loads(b"[" + text + b"]"), strict=True))
    return decoded([text], schema).row(0, named=True)
