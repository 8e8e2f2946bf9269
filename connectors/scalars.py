"""Checks of single Avro values: primitives, times, decimals. See `connectors.values`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Check = Callable[[Any], Any]
"""Returns the value as the encoder wants it, or raises `BadValue`."""

INT = (-(2**31), 2**31 - 1)
LONG = (-(2**63), 2**63 - 1)
SINGLE_MAX = (2 - 2**-23) * 2.0**127
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
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


def shown(value: Any) -> str:
    """A value as messages show it: ASCII, and not too long."""
    if isinstance(value, int) and value.bit_length() > 256:  # Python refuses to print large ones
        return f"an integer of {value.bit_length()} bits"
    text = ascii(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _null(value: Any) -> None:
    if value is not None:
        raise BadValue(f"{shown(value)} is not null")


def _boolean(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise BadValue(f"{shown(value)} is not a boolean")


def _integer(kind: str, least: int, most: int) -> Check:
    def check(value: Any) -> int:
        if type(value) is not int:
            raise BadValue(f"{shown(value)} is not an integer")
        if not least <= value <= most:
            raise BadValue(f"{shown(value)} is outside of {kind}: {least} to {most}")
        return value

    return check


def _number(value: Any) -> float:
    if type(value) not in {int, float}:
        raise BadValue(f"{shown(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise BadValue(f"{shown(value)} is not a finite number")
    return number


def _single(value: Any) -> float:
    number = _number(value)
    if abs(number) > SINGLE_MAX:
        raise BadValue(f"{shown(value)} is outside of a 32-bit float")
    return number


def string(value: Any) -> str:
    """Text that is UTF-8."""
    if not isinstance(value, str):
        raise BadValue(f"{shown(value)} is not a string")
    # isascii is a flag of the string object, so the usual text costs nothing here.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadValue("text holds half a surrogate pair, which is not Unicode") from None
    return value


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise BadValue(f"{shown(value)} is not bytes")
    return value


PRIMITIVES: dict[str, Check] = {
    "null": _null,
    "boolean": _boolean,
    "int": _integer("int", *INT),
    "long": _integer("long", *LONG),
    "float": _single,
    "double": _number,
    "string": string,
    "bytes": _bytes,
}


def logical(schema: Mapping[str, Any]) -> Check | None:
    """The check of a logical type, or None where the schema has none that we know."""
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
            raise BadValue(f"{shown(value)} is neither a datetime nor an integer")
        if not least <= value <= most:
            raise BadValue(f"{shown(value)} is outside of the years 1 to 9999: wrong unit?")
        return value

    return check


def _date(value: Any) -> int:
    if isinstance(value, date) and not isinstance(value, datetime):
        return (value - _EPOCH.date()).days
    return int(PRIMITIVES["int"](value))


def _decimal(precision: int, scale: int) -> Check:
    def check(value: Any) -> Decimal:
        if not isinstance(value, Decimal) or not value.is_finite():
            raise BadValue(f"{shown(value)} is not a finite Decimal")
        _sign, digits, exponent = value.as_tuple()
        if -int(exponent) > scale or len(digits) + int(exponent) + scale > precision:
            raise BadValue(f"{shown(value)} needs more than decimal({precision},{scale})")
        return value

    return check
