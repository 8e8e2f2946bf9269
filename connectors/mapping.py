"""Columns of a file → fields of a record, with every value checked, by columns.

A field takes the SQL expression given for it (`--map`), else the column of its name, else the
schema's default. Expressions are Polars SQL over the file's columns and `_line`:

    event_time=ts        country='NL'        click_id=concat('log-', _line)
    event_time=try_cast(seconds as bigint) * 1000

What a field accepts: text; integers in range (text or whole floats too); finite numbers; `true`
and `false`; enum symbols; times as epoch milliseconds, RFC 3339 text, or datetimes with a zone.
A time without a zone is no instant: it is refused unless `zone` says what it means.
A null takes the schema's default where the field cannot be null.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from connectors.encode import KEY_BYTES_MAX
from connectors.readers import LINE, Rejected
from connectors.scalars import INT, LONG, TIME_RANGE_S
from streams.runtime.topic import RecordType, Topic

_REASON = "_reason"
_RFC3339 = "%Y-%m-%dT%H:%M:%S%.f%:z"
_ZONELESS = ("%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d")


class BadMapping(ValueError):
    """The mapping cannot be right for any row; the message names the field."""


@dataclass(frozen=True)
class Field:
    """One field of a flat record, as a column."""

    name: str
    kind: str
    nullable: bool
    default: Any = None
    symbols: tuple[str, ...] = ()

    @classmethod
    def of(cls, declared: Mapping[str, Any]) -> Field:
        """From a field of the schema. Raises `BadMapping` where a column cannot hold it."""
        kind, name = declared["type"], declared["name"]
        nullable = isinstance(kind, list) and "null" in kind
        if isinstance(kind, list):
            others = [branch for branch in kind if branch != "null"]
            kind = others[0] if len(others) == 1 else others
        symbols: tuple[str, ...] = ()
        if isinstance(kind, dict):
            symbols = tuple(kind.get("symbols", ()))
            kind = kind.get("logicalType") or kind["type"]
        if kind not in _CASTS:
            raise BadMapping(f"field {name}: a column cannot hold {kind}")
        return cls(name, kind, nullable, declared.get("default"), symbols)


@dataclass(frozen=True)
class Mapper:
    """Maps frames of one kind of file to one record type."""

    topic: Topic
    record: RecordType
    expressions: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None

    def __post_init__(self) -> None:
        unknown = [name for name in self.expressions if name not in self.record.columns]
        if unknown:
            fields = ", ".join(self.record.columns)
            raise BadMapping(f"{self.record.name} has no field {unknown[0]}; it has {fields}")
        for name, expression in self.expressions.items():
            _sql(name, expression)
        self.fields  # noqa: B018 - raises where a column cannot hold a field

    @property
    def fields(self) -> list[Field]:
        """The record's fields."""
        return [Field.of(declared) for declared in self.record.schema["fields"]]

    def apply(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Rejected]]:
        """Rows that fit the record (its fields, in order, plus `_line`) and those that do not.

        Raises `BadMapping` where a required field has neither expression nor column.
        """
        try:
            checked = self._checked(frame)
        except pl.exceptions.PolarsError as error:
            return self._bisected(frame, error)
        bad = checked.filter(pl.col(_REASON).str.len_bytes() > 0)
        rejected = []
        if bad.height:
            lines = bad[LINE].to_list()
            contents = frame.filter(pl.col(LINE).is_in(lines)).drop(LINE).to_dicts()
            reasons = bad[_REASON].to_list()
            rejected = [Rejected(*found) for found in zip(lines, reasons, contents, strict=True)]
        good = checked.filter(pl.col(_REASON).str.len_bytes() == 0)
        return good.select(*self.record.columns, LINE), rejected

    def _bisected(
        self, frame: pl.DataFrame, error: Exception
    ) -> tuple[pl.DataFrame, list[Rejected]]:
        """An expression fails for some row: halve until it is alone."""
        _complain_of_columns(error)
        if frame.height <= 1:
            rejected = [
                Rejected(row.pop(LINE), f"the mapping fails: {error}", row)
                for row in frame.to_dicts()
            ]
            empty = {f.name: _CASTS[f.kind][0] for f in self.fields}
            return pl.DataFrame(schema={**empty, LINE: pl.Int64}), rejected
        half = frame.height // 2
        good_1, bad_1 = self.apply(frame[:half])
        good_2, bad_2 = self.apply(frame[half:])
        return pl.concat([good_1, good_2]), [*bad_1, *bad_2]

    def _checked(self, frame: pl.DataFrame) -> pl.DataFrame:
        raw = frame.select(
            *(self._source(f, frame).alias(f.name) for f in self.fields), pl.col(LINE)
        )
        return raw.with_columns(
            *(_cast(f, raw.schema[f.name], self.zone) for f in self.fields),
            pl.concat_str(
                [self._reason(f, raw.schema[f.name]) for f in self.fields],
                separator="; ",
                ignore_nulls=True,
            ).alias(_REASON),
        )

    def _source(self, wanted: Field, frame: pl.DataFrame) -> pl.Expr:
        if wanted.name in self.expressions:
            return _sql(wanted.name, self.expressions[wanted.name])
        if wanted.name in frame.columns:
            return pl.col(wanted.name)
        if wanted.nullable or wanted.default is not None:
            return pl.lit(None, pl.String)
        columns = ", ".join(name for name in frame.columns if name != LINE)
        raise BadMapping(
            f"field {wanted.name}: no column of that name and no --map; the file has {columns}"
        )

    def _reason(self, wanted: Field, dtype: Any) -> pl.Expr:
        value = _cast(wanted, dtype, self.zone)
        shown = pl.col(wanted.name).cast(pl.String, strict=False).str.slice(0, 40)
        given, became = pl.col(wanted.name).is_not_null(), value.is_not_null()
        refused = pl.format(f"{wanted.name}: '{{}}' is no {_named(wanted)}", shown)
        reason: Any = pl.when(given & ~became).then(refused)
        if not wanted.nullable:
            reason = reason.when(~became).then(pl.lit(f"{wanted.name}: missing"))
        if wanted.name == self.topic.key:
            size = value.cast(pl.String).str.len_bytes()
            fits = size.is_between(1, KEY_BYTES_MAX)
            reason = reason.when(~fits).then(
                pl.lit(f"{wanted.name}: the record key must have 1 to {KEY_BYTES_MAX} bytes")
            )
        found: pl.Expr = reason
        return found


def _sql(name: str, expression: str) -> pl.Expr:
    try:
        return pl.sql_expr(expression)
    except pl.exceptions.PolarsError as error:
        raise BadMapping(f"field {name}: {expression!r} is no SQL expression: {error}") from error


def _complain_of_columns(error: Exception) -> None:
    """A column that is not there is not there in any row."""
    if isinstance(error, pl.exceptions.ColumnNotFoundError):
        raise BadMapping(f"no such column: {error}") from error


def _named(wanted: Field) -> str:
    return f"one of {', '.join(wanted.symbols)}" if wanted.symbols else _CASTS[wanted.kind][1]


def _cast(wanted: Field, dtype: Any, zone: str | None) -> pl.Expr:
    """The value as the encoder wants it; null where it does not fit."""
    column = pl.col(wanted.name)
    match wanted.kind:
        case "int":
            value = _integer(column, dtype, *INT)
        case "long":
            value = _integer(column, dtype, *LONG)
        case "float" | "double":
            number = column.cast(pl.Float64, strict=False)
            value = pl.when(number.is_finite()).then(number)
        case "boolean":
            text = column.cast(pl.String, strict=False).str.to_lowercase()
            value = pl.when(text.is_in(["true", "false"])).then(text == "true")
        case "timestamp-millis":
            value = _instant_ms(column, dtype, zone)
        case "enum":
            text = column.cast(pl.String, strict=False)
            value = pl.when(text.is_in(wanted.symbols)).then(text)
        case _:
            value = column.cast(pl.String, strict=False)
    if wanted.default is not None:
        value = pl.when(column.is_null()).then(pl.lit(wanted.default)).otherwise(value)
    return value.alias(wanted.name)


def _integer(column: pl.Expr, dtype: Any, least: int, most: int) -> pl.Expr:
    if dtype.is_float():  # only whole numbers, and only where a double is exact
        column = pl.when((column == column.floor()) & (column.abs() < 2**53)).then(column)
    value = column.cast(pl.Int64, strict=False)
    return pl.when(value.is_between(least, most)).then(value)


def _instant_ms(column: pl.Expr, dtype: Any, zone: str | None) -> pl.Expr:
    if isinstance(dtype, pl.Datetime):
        aware = column if dtype.time_zone else _in_zone(column, zone)
        value = aware.dt.timestamp("ms")
    elif dtype == pl.Date:
        value = _in_zone(column.cast(pl.Datetime("us")), zone).dt.timestamp("ms")
    elif dtype.is_integer():
        value = column.cast(pl.Int64, strict=False)
    else:
        value = _text_ms(column.cast(pl.String, strict=False), zone)
    least, most = (bound * 1_000 for bound in TIME_RANGE_S)
    return pl.when(value.is_between(least, most)).then(value)


def _text_ms(text: pl.Expr, zone: str | None) -> pl.Expr:
    """Epoch milliseconds of digits, of RFC 3339, and, where a zone is given, of zoneless text."""
    text = text.str.strip_chars().str.replace(" ", "T", literal=True)
    offset = text.str.replace("[zZ]$", "+00:00")
    aware = offset.str.to_datetime(_RFC3339, time_unit="ms", time_zone="UTC", strict=False)
    forms = [text.cast(pl.Int64, strict=False), aware.dt.timestamp("ms")]
    if zone is not None:
        for form in _ZONELESS:
            naive = text.str.to_datetime(form, time_unit="ms", strict=False)
            forms.append(_in_zone(naive, zone).dt.timestamp("ms"))
    return pl.coalesce(forms)


def _in_zone(naive: pl.Expr, zone: str | None) -> pl.Expr:
    """The instant of a zoneless time; null without a zone, and where clocks change and the time
    happens twice or never.
    """
    if zone is None:
        return pl.lit(None, pl.Datetime("ms", "UTC"))
    return naive.dt.replace_time_zone(zone, ambiguous="null", non_existent="null")


_CASTS: dict[str, tuple[Any, str]] = {
    "string": (pl.String, "text"),
    "int": (pl.Int64, "32-bit integer"),
    "long": (pl.Int64, "64-bit integer"),
    "float": (pl.Float64, "finite number"),
    "double": (pl.Float64, "finite number"),
    "boolean": (pl.Boolean, "true or false"),
    "timestamp-millis": (pl.Int64, "time with a zone"),
    "enum": (pl.String, "symbol"),
}
"""Kinds of fields that a column can hold: the column's type, and its name in messages."""
