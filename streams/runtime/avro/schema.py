"""Avro schemas as a small tree: names resolved, logical types known, recursion closed.

Source: Avro 1.12 specification, "Schema Declaration" and "Names".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

_LOGICAL_BASES = {
    "date": {"int"},
    "time-millis": {"int"},
    "time-micros": {"long"},
    "timestamp-millis": {"long"},
    "timestamp-micros": {"long"},
    "timestamp-nanos": {"long"},
    "local-timestamp-millis": {"long"},
    "local-timestamp-micros": {"long"},
    "local-timestamp-nanos": {"long"},
    "decimal": {"bytes", "fixed"},
    "uuid": {"string", "fixed"},
}

_YEARS_MS = (-62_135_596_800_000, 253_402_300_799_999)
_YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
INT64 = (-(2**63), 2**63 - 1)
RANGES: Mapping[str, tuple[int, int]] = {
    "date": (-719_162, 2_932_896),
    "time-millis": (0, 86_399_999),
    "time-micros": (0, 86_399_999_999),
    "timestamp-millis": _YEARS_MS,
    "timestamp-micros": _YEARS_US,
    "local-timestamp-millis": _YEARS_MS,
    "local-timestamp-micros": _YEARS_US,
    "int": (-(2**31), 2**31 - 1),
}
"""Accepted values, by logical type and then by kind: dates and times of the years 1 to 9999."""


class BadSchema(ValueError):
    """The text is not an Avro schema."""


@dataclass(eq=False, slots=True)
class Type:
    """One Avro type. Recursive records refer to themselves by identity, hence no `==`."""

    kind: str
    name: str = ""
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    aliases: tuple[str, ...] = ()
    items: Type | None = None
    branches: tuple[Type, ...] = ()
    fields: tuple[Field, ...] = ()

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest and highest accepted value of an integer type or an enum's index."""
        if self.kind == "enum":
            return 0, len(self.symbols) - 1
        return RANGES.get(self.logical) or RANGES.get(self.kind, INT64)

    @property
    def required(self) -> Type | None:
        """The type itself, or T of a union of null and T; None for every other union."""
        if self.kind != "union":
            return self
        inner = [branch for branch in self.branches if branch.kind != "null"]
        return inner[0] if len(inner) == 1 and len(self.branches) == 2 else None


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `default` holds JSON and means something only if `optional`."""

    name: str
    type: Type
    aliases: tuple[str, ...] = ()
    optional: bool = False
    default: Any = None


@dataclass(slots=True)
class _Parser:
    named: dict[str, Type] = field(default_factory=dict)

    def of(self, schema: Any, namespace: str) -> Type:
        match schema:
            case str() if schema in PRIMITIVES:
                return Type(schema)
            case str():
                return self._reference(schema, namespace)
            case list():
                return Type("union", branches=tuple(self.of(s, namespace) for s in schema))
            case {"type": str(kind)}:
                return self._complex(kind, schema, namespace)
            case {"type": inner}:
                return self.of(inner, namespace)
        raise BadSchema(f"not an Avro type: {schema!r:.80}")

    def _reference(self, name: str, namespace: str) -> Type:
        for full in (_fullname(name, namespace), name):
            if full in self.named:
                return self.named[full]
        raise BadSchema(f"unknown type {name!r:.80}")

    def _complex(self, kind: str, schema: dict[str, Any], namespace: str) -> Type:
        match kind:
            case "array":
                return Type("array", items=self.of(schema["items"], namespace))
            case "map":
                return Type("map", items=self.of(schema["values"], namespace))
            case "record" | "error" | "enum" | "fixed":
                return self._define(kind, schema, namespace)
            case _ if kind in PRIMITIVES:
                return _with_logical(Type(kind), schema)
        return self._reference(kind, namespace)

    def _define(self, kind: str, schema: dict[str, Any], namespace: str) -> Type:
        full = _fullname(schema["name"], schema.get("namespace", namespace))
        space = full.rpartition(".")[0]
        defined = Type(
            "record" if kind == "error" else kind,
            name=full,
            size=schema.get("size", 0),
            symbols=tuple(schema.get("symbols", ())),
            default=schema.get("default") if kind == "enum" else None,
            aliases=tuple(_fullname(alias, space) for alias in schema.get("aliases", ())),
        )
        self.named[full] = defined
        defined.fields = tuple(
            Field(
                name=f["name"],
                type=self.of(f["type"], space),
                aliases=tuple(f.get("aliases", ())),
                optional="default" in f,
                default=f.get("default"),
            )
            for f in schema.get("fields", ())
        )
        return _with_logical(defined, schema)


def parse(schema: Any) -> Type:
    """The tree of a schema given as parsed JSON; `BadSchema` where it is none."""
    try:
        return _Parser().of(schema, "")
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadSchema(f"not an Avro schema: {type(error).__name__} {error}") from error


def without_logical(schema: Any) -> Any:
    """The same JSON without logical types: fastavro gives raw values then, and cannot overflow."""
    if isinstance(schema, list):
        return [without_logical(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_logical(value) if key in {"type", "items", "values", "fields"} else value
        for key, value in schema.items()
        if key != "logicalType"
    }


def same(a: Type, b: Type) -> bool:
    """Whether two types mean the same bytes and the same values; recursive types never do."""
    return _same(a, b, 0)


def _same(a: Type, b: Type, depth: int) -> bool:
    if depth > 32 or _shape(a) != _shape(b):
        return False
    left = [*a.branches, *(f.type for f in a.fields), *([a.items] if a.items else [])]
    right = [*b.branches, *(f.type for f in b.fields), *([b.items] if b.items else [])]
    return len(left) == len(right) and all(
        _same(x, y, depth + 1) for x, y in zip(left, right, strict=True)
    )


def _shape(t: Type) -> tuple[Any, ...]:
    names = tuple(f.name for f in t.fields)
    return t.kind, t.logical, t.size, t.precision, t.scale, t.symbols, names


def _with_logical(t: Type, schema: Mapping[str, Any]) -> Type:
    """Attach a logical type that fits its base; all others are ignored, as Avro asks."""
    logical = schema.get("logicalType", "")
    if t.kind in _LOGICAL_BASES.get(logical, ()):
        t.logical = logical
        t.precision, t.scale = schema.get("precision", 0), schema.get("scale", 0)
    return t


def _fullname(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
