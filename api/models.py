"""Request models of events, built from the topic catalogue.

What a client may send is the record type's fields plus `type`, the record's name. On top of the
schema: text has no control characters and a bounded length, ids are not empty, times are RFC 3339
with an offset or milliseconds since 1970 (1970 to 2100), integers are integers (not `1.0`, not
`true`), numbers are finite, and unknown fields are refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    WithJsonSchema,
    create_model,
)

from connectors.scalars import INT, LONG
from streams.runtime.topic import RecordType

ID_CHARS_MAX = 128
TEXT_CHARS_MAX = 1_024
ITEMS_MAX = 1_000
TIME_MS_MAX = 4_102_444_800_000
"""2100-01-01: a later time is a wrong unit or a broken clock."""

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Input(BaseModel):
    """Base of what clients send: no unknown fields, no guessing of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def clean_text(value: str) -> str:
    """Refuse control characters and half surrogate pairs (which URLs cannot hold anyway)."""
    if _CONTROL.search(value):
        raise ValueError("control characters are not allowed")
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("half a surrogate pair is not Unicode")
    return value


def instant_ms(value: object) -> int:
    """Milliseconds since 1970 of an RFC 3339 text or of an integer. A text without an offset is
    no instant and is refused; digits past milliseconds are cut off.
    """
    if isinstance(value, str):
        if not _RFC3339.fullmatch(value):
            raise ValueError("not a time of RFC 3339 with an offset, like 2026-01-31T12:00:00Z")
        try:
            # Python takes at most six digits; the zone follows them.
            parsed = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", value.upper()))
            since = parsed - _EPOCH
        except (ValueError, OverflowError):
            raise ValueError("not a time of the calendar") from None
        value = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if type(value) is not int:
        raise ValueError("neither a time of RFC 3339 nor milliseconds since 1970")
    if not 0 <= value <= TIME_MS_MAX:
        raise ValueError("outside of 1970 to 2100")
    return value


Id = Annotated[
    str,
    Field(min_length=1, max_length=ID_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$"),
    AfterValidator(clean_text),
]
Text = Annotated[
    str,
    Field(max_length=TEXT_CHARS_MAX, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$"),
    AfterValidator(clean_text),
]
Instant = Annotated[
    int,
    BeforeValidator(instant_ms),
    WithJsonSchema(
        {
            "description": "RFC 3339 with an offset, or milliseconds since 1970.",
            "oneOf": [
                {"type": "string", "format": "date-time", "example": "2026-01-01T00:00:01.250Z"},
                {"type": "integer", "minimum": 0, "maximum": TIME_MS_MAX},
            ],
        }
    ),
]


def _digits(value: object) -> object:
    """Numbers in a URL are text."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value) else value


QueryInstant = Annotated[Instant, BeforeValidator(_digits)]
Country = Annotated[str, Field(pattern=r"^[A-Z]{2}$")]


def event_model(
    record: RecordType, identity: str, narrower: Mapping[str, Any] | None = None
) -> type[Input]:
    """The request model of one record type. `identity` may be left out by the client;
    `narrower` replaces the types of some fields. Raises `ValueError` for a schema that has a
    field named `type` or a type with no JSON form here.
    """
    narrower = narrower or {}
    fields: dict[str, Any] = {"type": (Literal[record.name], Field(description="The record."))}
    for declared in record.schema["fields"]:
        name = declared["name"]
        if name == "type":
            raise ValueError(f"{record.fullname}: `type` is taken by the API")
        kind = narrower.get(name, _type(declared["type"], name))
        doc = declared.get("doc", "")
        if name == identity:
            doc += " Give your own, and sending the event again is harmless; else one is made."
            fields[name] = (kind | None, Field(default=None, description=doc))
        elif "default" in declared:
            fields[name] = (kind, Field(default=declared["default"], description=doc))
        else:
            fields[name] = (kind, Field(description=doc))
    return create_model(record.name, __base__=Input, __doc__=record.schema.get("doc"), **fields)


_SIMPLE: dict[str, Any] = {
    "boolean": Annotated[bool, Strict()],
    "int": Annotated[int, Strict(), Field(ge=INT[0], le=INT[1])],
    "long": Annotated[int, Strict(), Field(ge=LONG[0], le=LONG[1])],
    "float": Annotated[float, Field(allow_inf_nan=False)],
    "double": Annotated[float, Field(allow_inf_nan=False)],
}


def _type(schema: Any, name: str) -> Any:
    """The Python type of an Avro type, as JSON clients see it."""
    found: Any
    match schema:
        case "string":
            found = Id if name.endswith("_id") else Text
        case str() if schema in _SIMPLE:
            found = _SIMPLE[schema]
        case ["null", inner] | [inner, "null"]:
            found = _type(inner, name) | None
        case {"type": "long", "logicalType": "timestamp-millis"}:
            found = Instant
        case {"type": "enum", "symbols": [*symbols]}:
            found = Literal[tuple(symbols)]
        case {"type": "array", "items": items}:
            found = Annotated[list[_type(items, name)], Field(max_length=ITEMS_MAX)]  # type: ignore[misc]
        case {"type": "record", "name": str(title), "fields": [*inside]}:
            fields: dict[str, Any] = {
                f["name"]: (_type(f["type"], f["name"]), f.get("default", ...)) for f in inside
            }
            found = create_model(title, __base__=Input, **fields)
        case {"type": str(inner)} if "logicalType" not in schema:
            found = _type(inner, name)
        case _:
            raise ValueError(f"field {name}: Avro type {schema!r} has no JSON form here")
    return found
