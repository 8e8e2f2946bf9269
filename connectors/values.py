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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from connectors.scalars import PRIMITIVES, BadValue, Check, logical, shown, string

_MISSING = object()


def checker(schema: Any, named: dict[str, Check] | None = None) -> Check:
    """The check of values of an Avro schema (parsed JSON). Raises `ValueError` on a schema that
    it does not know.
    """
    named = {} if named is None else named
    if isinstance(schema, list):
        return _union(schema, named)
    if isinstance(schema, str):
        found = named.get(schema) or PRIMITIVES.get(schema)
        if found is None:
            raise ValueError(f"unknown Avro type {schema!r}")
        return found
    found = logical(schema)
    if found is not None:
        return found
    build = _COMPLEX.get(schema["type"])
    return checker(schema["type"], named) if build is None else build(schema, named)


def _remember(schema: Mapping[str, Any], named: dict[str, Check], check: Check) -> Check:
    named[schema["name"]] = named[_fullname(schema)] = check
    return check


def _fullname(schema: Mapping[str, Any]) -> str:
    name, space = str(schema["name"]), schema.get("namespace")
    return f"{space}.{name}" if space and "." not in name else name


def _enum(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    name, symbols = schema["name"], schema["symbols"]
    known = frozenset(symbols)

    def check(value: Any) -> str:
        if isinstance(value, str) and value in known:
            return str(value)
        raise BadValue(f"{shown(value)} is no {name}: {', '.join(symbols)}")

    return _remember(schema, named, check)


def _fixed(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    size = schema["size"]

    def check(value: Any) -> bytes:
        if not isinstance(value, bytes) or len(value) != size:
            raise BadValue(f"{shown(value)} is not {size} bytes")
        return value

    return _remember(schema, named, check)


def _array(schema: Mapping[str, Any], named: dict[str, Check]) -> Check:
    item = checker(schema["items"], named)

    def check(value: Any) -> list[Any]:
        if not isinstance(value, Sequence) or isinstance(value, str | bytes):
            raise BadValue(f"{shown(value)} is not a list")
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
            raise BadValue(f"{shown(value)} is not a mapping")
        checked = {}
        for key, element in value.items():
            try:
                checked[string(key)] = item(element)
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
            raise BadValue(f"{shown(value)} is not a record")
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
            raise BadValue("unknown field", (shown(unknown).strip("'"),))
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
