"""Whether two versions of a schema can read each other's events, and which field says no.

A log that is replayed has all versions on it for ever, read by workers of all versions, so the
rule is FULL_TRANSITIVE: every version reads every other. The registry refuses a break too, but
late, and without naming the field; and some registries let a record inside a union break.

The rules are those of "Schema Resolution" in the Avro 1.12 specification, with four stricter
ones, since readers here decode with the writer's schema and cast columns by name:

- string and bytes are not the same (Avro lets one read the other);
- a logical type may not change (Avro ignores it, so milliseconds would pass as microseconds);
- aliases are not followed;
- a default may not change while a version without the field exists (`changed_defaults`),
  or a replay would read other values from the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import fastavro

Schema = Any
"""A parsed Avro schema: a name, a list (union) or a dict."""

Direction = Literal["backward", "forward", "both"]
"""backward: new readers fail on old events; forward: old readers fail on new events."""

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
}
_NAMED = ("record", "enum", "fixed")


@dataclass(frozen=True, slots=True)
class Break:
    """One reason why two versions do not read each other: the field, and what happened to it."""

    path: str
    reason: str
    direction: Direction

    def __str__(self) -> str:
        failing = {
            "backward": "new readers cannot read old events",
            "forward": "old readers cannot read new events",
            "both": "neither reads the other's events",
        }
        return f"{self.path}: {self.reason} ({failing[self.direction]})"


def breaks(old: Schema, new: Schema) -> tuple[Break, ...]:
    """Why `old` and `new` are not fully compatible, by path; empty where they are."""
    title = _title(new).rsplit(".", 1)[-1]
    backward = list(_Resolution("backward", reader=new, writer=old).breaks(title))
    forward = list(_Resolution("forward", reader=old, writer=new).breaks(title))
    shared = {(b.path, b.reason) for b in backward} & {(b.path, b.reason) for b in forward}
    found: dict[Break, None] = {}
    for b in (*backward, *forward):
        both = (b.path, b.reason) in shared
        found[Break(b.path, b.reason, "both" if both else b.direction)] = None
    return tuple(sorted(found, key=lambda b: (b.path, b.direction)))


def changed_defaults(versions: Sequence[Schema]) -> tuple[Break, ...]:
    """Fields of the newest version whose default changed while a version lacks the field.

    `versions` are records, oldest first. Events without the field would now read otherwise.
    """
    title = _title(versions[-1]).rsplit(".", 1)[-1]
    *past, newest = [{f["name"]: f for f in version["fields"]} for version in versions]
    found = []
    for name, field in newest.items():
        with_it = [fields[name] for fields in past if name in fields]
        if len(with_it) in (0, len(past)) or "default" not in with_it[-1]:
            continue
        before, after = with_it[-1]["default"], field.get("default")
        if before != after:
            reason = f"default changed from {json.dumps(before)} to {json.dumps(after)}"
            why = "; events from before the field would replay with another value"
            found.append(Break(f"{title}.{name}", reason + why, "backward"))
    return tuple(found)


class _Resolution:
    """Reads `writer`'s data with `reader`'s schema, on paper, and yields what would fail."""

    def __init__(
        self, direction: Literal["backward", "forward"], *, reader: Schema, writer: Schema
    ) -> None:
        self._direction: Literal["backward", "forward"] = direction
        self._reader_names: dict[str, Any] = {}
        self._writer_names: dict[str, Any] = {}
        self._reader = fastavro.parse_schema(reader, named_schemas=self._reader_names)
        self._writer = fastavro.parse_schema(writer, named_schemas=self._writer_names)
        self._seen: set[tuple[str, str]] = set()

    def breaks(self, path: str) -> Iterator[Break]:
        yield from self._compare(self._reader, self._writer, path)

    def _break(self, path: str, backward: str, forward: str | None = None) -> Break:
        reason = backward if self._direction == "backward" or forward is None else forward
        return Break(path, reason, self._direction)

    def _compare(self, reader: Schema, writer: Schema, path: str) -> Iterator[Break]:
        reader = _resolved(reader, self._reader_names)
        writer = _resolved(writer, self._writer_names)
        if isinstance(reader, list) or isinstance(writer, list):
            yield from self._union(reader, writer, path)
        elif _logical(reader) != _logical(writer):
            yield self._type_changed(reader, writer, path)
        elif _kind(reader) != _kind(writer):
            if _kind(reader) not in _PROMOTIONS.get(_kind(writer), ()):
                yield self._type_changed(reader, writer, path)
        else:
            yield from self._same_kind(reader, writer, path)

    def _same_kind(self, reader: Schema, writer: Schema, path: str) -> Iterator[Break]:
        kind = _kind(reader)
        if kind in _NAMED and reader["name"] != writer["name"]:
            yield self._type_changed(reader, writer, path)
        elif kind == "record":
            yield from self._record(reader, writer, path)
        elif kind == "enum":
            yield from self._enum(reader, writer, path)
        elif kind == "fixed" and reader["size"] != writer["size"]:
            old, new = self._old_new(reader["size"], writer["size"])
            yield self._break(path, f"fixed size changed from {old} to {new}")
        elif kind == "array":
            yield from self._compare(reader["items"], writer["items"], f"{path}[]")
        elif kind == "map":
            yield from self._compare(reader["values"], writer["values"], f"{path}{{}}")

    def _record(self, reader: Schema, writer: Schema, path: str) -> Iterator[Break]:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:  # a record that contains itself
            return
        self._seen.add(pair)
        written = {f["name"]: f for f in writer["fields"]}
        for field in reader["fields"]:
            at = f"{path}.{field['name']}"
            if field["name"] in written:
                yield from self._compare(field["type"], written[field["name"]]["type"], at)
            elif "default" not in field:
                yield self._break(at, "added without a default", "removed, and it had no default")
        self._seen.remove(pair)

    def _enum(self, reader: Schema, writer: Schema, path: str) -> Iterator[Break]:
        if reader.get("default") in reader["symbols"]:
            return
        for symbol in writer["symbols"]:
            if symbol not in reader["symbols"]:
                yield self._break(
                    path,
                    f"enum symbol {symbol} removed, and the enum has no default",
                    f"enum symbol {symbol} added, and the old enum has no default",
                )

    def _union(self, reader: Schema, writer: Schema, path: str) -> Iterator[Break]:
        """Every branch that may have been written needs a branch to be read with."""
        branches = reader if isinstance(reader, list) else [reader]
        for written in writer if isinstance(writer, list) else [writer]:
            attempts = [list(self._compare(branch, written, path)) for branch in branches]
            if [] in attempts:
                continue
            alike = self._alike(branches, written)
            if alike is not None:
                # The branch is still there but changed inside (bad registries miss this).
                yield from attempts[alike]
                continue
            name = _show(_resolved(written, self._writer_names))
            yield self._break(path, f"union member {name} dropped", f"union member {name} added")

    def _alike(self, branches: list[Schema], written: Schema) -> int | None:
        wanted = _title(_resolved(written, self._writer_names))
        for i, branch in enumerate(branches):
            if _title(_resolved(branch, self._reader_names)) == wanted:
                return i
        return None

    def _type_changed(self, reader: Schema, writer: Schema, path: str) -> Break:
        old, new = self._old_new(_show(reader), _show(writer))
        return self._break(path, f"type changed from {old} to {new}")

    def _old_new(self, reader: Any, writer: Any) -> tuple[Any, Any]:
        return (writer, reader) if self._direction == "backward" else (reader, writer)


def _resolved(schema: Schema, names: dict[str, Any]) -> Schema:
    if isinstance(schema, str):
        return names.get(schema, schema)
    if isinstance(schema, dict) and isinstance(schema["type"], dict | list):
        return _resolved(schema["type"], names)  # {"type": {"type": "string"}}
    return schema


def _kind(schema: Schema) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _logical(schema: Schema) -> tuple[Any, ...]:
    if not isinstance(schema, dict) or "logicalType" not in schema:
        return ()
    return schema["logicalType"], schema.get("precision"), schema.get("scale", 0)


def _title(schema: Schema) -> str:
    """What makes two branches of unions the same branch: the full name, else the kind."""
    if isinstance(schema, dict) and schema["type"] in _NAMED:
        return f"{schema['name']}"
    return "union" if isinstance(schema, list) else _kind(schema)


def _show(schema: Schema) -> str:
    if isinstance(schema, list):
        return " | ".join(_show(branch) for branch in schema)
    logical = _logical(schema)
    return str(logical[0]) if logical else _title(schema).rsplit(".", 1)[-1]
