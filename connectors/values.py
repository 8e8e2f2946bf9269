"""Checks of one Avro value before it is written: strict where Avro encoders are lenient.

An encoder writes 2**31 into an `int`, `True` and `1.5` into a `long`, a naive datetime in the
local zone, and picks the first branch of a union that fits. Each of these is a wrong record that
every reader then believes, so `checker` builds, once per schema, a function that refuses them.

What is accepted: `bool`, `int` in range, finite `float`, `str` that is UTF-8, `bytes`, enum
symbols, aware `datetime` or integers for timestamps, `date` or days, `Decimal` with no more
digits than the schema has, dataclasses or mappings for records (fields exactly as in the schema;
a missing one takes the schema's default), sequences, mappings. In a union of records the value
must fit exactly one branch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Check = Callable[[Any], Any]
"""Returns the value as the encoder wants it, or raises `BadValue`."""

INT = (-(2**31), 2**31 - 1)
LONG = (-(2**63), 2**63 - 1)
SINGLE_MAX = (2 - 2**-23) * 2.0**127
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MISSING = object()
_PER_SECOND = {"timestamp-millis": 1_000, "timestamp-micros": 1_000_000}
TIME_RANGE_S = (-62_135_596_800, 253_402_300_799)
"""Years 1 to 9999: what a datetime holds. A timestamp outside of it has the wrong unit."""


class BadValue(ValueError):
    """A value does not fit its schema. `path` leads to it, for example `("items", 2, "price")`."""

    def __init__(self, reason: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def at(self, step: str | int) -> BadValue:
        """The same error seen from one level further out."""
        return BadValue(self.reason, (step, *self.path))

    def __str__(self) -> str:
        where = ".".join(map(str, self.path))
        return f"{where}: {self.reason}" if where else self.reason


def checker(schema: Any, named: dict[str, Check] | None = None) -> Check:
    """The check of values of an Avro schema (parsed JSON). Raises `ValueError` on a schema that
    it does not know.
    """
    named = {} if named is None else named
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        found = named.get(schema) or _PRIMITIVES.get(schema)
        if found is None:
            raise ValueError(f"unknown Avro type {schema!r}")
        return found
    logical = _logical(schema)
    if logical is not None:
        return logical
    build = _COMPLEX.get(schema["type"])
    return checker(schema["type"], named) if build is None else build(schema, named)


def _remember(schema: Mapping[str, Any], named: dict[str, Check], check: Check) -> Check:
    named[schema["name"]] = named[_fullname(schema)] = check
    return check


def _fullname(schema: Mapping[str, Any]) -> str:
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _shown(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _null(value: Any) -> None:
    if value is not None:
        raise BadValue(f"{_shown(value)} is not null")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise BadValue(f"{_shown(value)} is not a boolean")


def _integer(kind: str, least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int:
            raise BadValue(f"{_shown(value)} is not an integer")
        if not least <= value <= most:
            raise BadValue(f"{_shown(value)} is outside of {kind}: {least} to {most}")
        return value

    return check


def _number(value: Any) -> float:
    if type(value) not in {int, float}:
        raise BadValue(f"{_shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadValue(f"{_shown(value)} is not a finite number")
    return number


def _single(value: Any) -> float:
    number = _number(value)
    if abs(number) > SINGLE_MAX:
        raise BadValue(f"{_shown(value)} is outside of a 32-bit float")
    return number


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise BadValue(f"{_shown(value)} is not a string")
    # isascii is a flag of the string object, so the usual text costs nothing here.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValue("text holds half a surrogate pair, which is not Unicode") from None
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadValue(f"{_shown(value)} is not bytes")
    return value


_PRIMITIVES: dict[str, Check] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int", *INT),
    "long": _integer("long", *LONG),
    "float": _single,
    "double": _number,
    "string": _string,
    "bytes": _bytes,
}


def _logical(schema: Mapping[str, Any]) -> Check | None:
    match schema.get("logicalType"), schema["type"]:
        case ("timestamp-millis" | "timestamp-micros") as kind, "long":
            return _timestamp(_PER_SECOND[kind])
        case "date", "int":
            return _date
        case "decimal", "bytes":
            return _decimal(int(schema["precision"]), int(schema.get("scale", 0)))
        case _:
            return None


def _timestamp(per_second: int) -> Check:
    least, most = (bound * per_second for bound in TIME_RANGE_S)

    def check(value: Any) -> int:
        if isinstance(value, datetime):
            if value.tzinfo is None:
                raise BadValue(f"{value.isoformat()} has no time zone, so it is no instant")
            since = value - _EPOCH
            whole = (since.days * 86_400 + since.seconds) * per_second
            return whole + since.microseconds * per_second // 1_000_000
        if type(value) is not int:
            raise BadValue(f"{_shown(value)} is neither a datetime nor an integer")
        if not least <= value <= most:
            raise BadValue(f"{_shown(value)} is outside of the years 1 to 9999: wrong unit?")
        return value

    return check


def _date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH.date()).days
    return int(_PRIMITIVES["int"](value))


def _decimal(precision: int, scale: int) -> Check:
    def check(value: Any) -> Decimal:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise BadValue(f"{_shown(value)} is not a finite Decimal")
        _sign, digits, exponent = value.as_tuple()
        if -int(exponent) > scale or len(digits) + int(exponent) + scale > precision:
            raise BadValue(f"{_shown(value)} needs more than decimal({precision},{scale})")
        return value

    return check


def _enum(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    name, symbols = schema["name"], schema["symbols"]
    known = frozenset(symbols)

    def check(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return str(value)
        raise BadValue(f"{_shown(value)} is no {name}: {', '.join(symbols)}")

    return _remember(schema, named, check)


def _fixed(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    size = schema["size"]

    def check(value: Any) -> bytes:
        if not isinstance(value, bytes) or len(value) != size:
            raise BadValue(f"{_shown(value)} is not {size} bytes")
        return value

    return _remember(schema, named, check)


def _array(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    item = checker(schema["items"], named)

    def check(value: Any) -> list[Any]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise BadValue(f"{_shown(value)} is not a list")
        checked = []
        for index, element in enumerate(value):
            try:
                checked.append(item(element))
            except BadValue as error:
                raise error.at(index) from None
        return checked

    return check


def _map(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    item = checker(schema["values"], named)

    def check(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise BadValue(f"{_shown(value)} is not a mapping")
        checked = {}
        for key, element in value.items():
            try:
                checked[_string(key)] = item(element)
            except BadValue as error:
                raise error.at(str(key)) from None
        return checked

    return check


def _record(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    fields: list[tuple[str, Check, Any]] = []

    def check(value: Any) -> dict[str, Any]:
        if dataclasses.is_dataclass(value):
            value = {name: getattr(value, name) for name, _, _ in fields if hasattr(value, name)}
        elif not isinstance(value, Mapping):
            raise BadValue(f"{_shown(value)} is not a record")
        checked, present = {}, 0
        for name, inner, default in fields:
            given = value.get(name, _MISSING)
            if given is _MISSING:
                if default is _MISSING:
                    raise BadValue("missing", (name,))
                given = default
            else:
                present += 1
            try:
                checked[name] = inner(given)
            except BadValue as error:
                raise error.at(name) from None
        if present != len(value):
            unknown = next(key for key in value if key not in checked)
            raise BadValue("unknown field", (_shown(unknown).strip("'"),))
        return checked

    _remember(schema, named, check)  # before its fields, so that a record may hold itself
    for field in schema["fields"]:
        default = field.get("default", _MISSING)
        fields.append((field["name"], checker(field["type"], named), default))
    return check


_COMPLEX: dict[str, Callable[[Mapping[str, Any], dict[str, Check]], Check]] = {
    "record": _record,
    "enum": _enum,
    "fixed": _fixed,
    "array": _array,
    "map": _map,
}


def _union(branches: Sequence[Any], named: dict[str, Check]) -> Check:
    checks = [checker(branch, named) for branch in branches if branch != "null"]
    nullable = len(checks) < len(branches)
    if len(checks) == 1:
        (only,) = checks

        def one(value: Any) -> Any:
            return None if nullable and value is None else only(value)

        return one
    tags = [
        _fullname(branch) if isinstance(branch, dict) and branch["type"] == "record" else None
        for branch in branches
        if branch != "null"
    ]

    def several(value: Any) -> Any:
        if nullable and value is None:
            return None
        fits, reasons = [], []
        for tag, check in zip(tags, checks, strict=True):
            try:
                inner = check(value)
            except BadValue as error:
                reasons.append(str(error))
            else:
                fits.append(inner if tag is None else (tag, inner))
        if len(fits) != 1:
            raise BadValue(f"fits {len(fits)} branches of the union, not one: {reasons}")
        return fits[0]

    return several
