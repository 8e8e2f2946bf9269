"""What an Avro type is in Python and in Polars, and whether Polars can read it itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from schemas.generate.declaration import DeclarationError

_PRIMITIVES = {
    "string": ("str", "pl.String"),
    "long": ("int", "pl.Int64"),
    "int": ("int", "pl.Int32"),
    "double": ("float", "pl.Float64"),
    "float": ("float", "pl.Float32"),
    "boolean": ("bool", "pl.Boolean"),
    "bytes": ("bytes", "pl.Binary"),
    "null": ("None", "pl.Null"),
}
LINE_CHARS_MAX = 100
_CLOSING = ")]}"
_TIMESTAMP = ("int", 'pl.Datetime("ms", "UTC")')


@dataclass(frozen=True, slots=True)
class PythonType:
    """Source text of one type: its annotation in a row and its Polars dtype."""

    annotation: str
    dtype: str


@dataclass(slots=True)
class Types:
    """Translates Avro types and gathers the named ones: enums as `Literal`, records as
    `TypedDict` (a nested record is a dict, as Polars and fastavro give and take it).
    """

    definitions: dict[str, str] = field(default_factory=dict)
    _known: dict[str, PythonType] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)

    def of(self, schema: Any, path: str, *, nested: bool = False) -> PythonType:
        """The Python type of an Avro type; `DeclarationError` names the field at `path`."""
        if isinstance(schema, list):
            return self._union(schema, path, nested=nested)
        if isinstance(schema, str):
            return self._named(schema, path)
        if "logicalType" in schema:
            if schema["logicalType"] != "timestamp-millis" or nested:
                raise DeclarationError(
                    f"{path}: logical type {schema['logicalType']} is not used here; "
                    "timestamp-millis on a top-level field is the only one"
                )
            return PythonType(*_TIMESTAMP)
        return self._complex(schema, path)

    def _complex(self, schema: dict[str, Any], path: str) -> PythonType:
        match schema["type"]:
            case "enum":
                kind = self._enum(schema, path)
            case "record":
                kind = self._record(schema, path)
            case "array":
                items = self.of(schema["items"], path, nested=True)
                kind = PythonType(f"list[{items.annotation}]", f"pl.List({items.dtype})")
            case "map":
                values = self.of(schema["values"], path, nested=True)
                kind = PythonType(f"dict[str, {values.annotation}]", "pl.Object")
            case "fixed":
                kind = self._define(schema["name"], PythonType("bytes", "pl.Binary"), "")
            case primitive:
                kind = self._named(primitive, path)
        return kind

    def _named(self, name: str, path: str) -> PythonType:
        if name in _PRIMITIVES:
            return PythonType(*_PRIMITIVES[name])
        short = name.rsplit(".", 1)[-1]
        if short in self._open:
            raise DeclarationError(f"{path}: {name} contains itself")
        if short not in self._known:
            raise DeclarationError(f"{path}: {name} is defined in another file; define it here")
        return self._known[short]

    def _union(self, branches: list[Any], path: str, *, nested: bool) -> PythonType:
        types = [self.of(branch, path, nested=nested) for branch in branches if branch != "null"]
        tail = " | None" if "null" in branches else ""
        annotation = " | ".join(dict.fromkeys(t.annotation for t in types)) + tail
        return PythonType(annotation, types[0].dtype if len(types) == 1 else "pl.Object")

    def _enum(self, schema: dict[str, Any], path: str) -> PythonType:
        if "default" not in schema:
            raise DeclarationError(
                f"{path}: enum {schema['name']} needs a default, or it can never get a new symbol"
            )
        symbols = ", ".join(json.dumps(symbol) for symbol in schema["symbols"])
        source = fitted(f"{schema['name']} = Literal[{symbols}]") + "\n"
        return self._define(schema["name"], PythonType(schema["name"], "pl.String"), source)

    def _record(self, schema: dict[str, Any], path: str) -> PythonType:
        name = schema["name"]
        self._open.add(name)
        fields = {
            f["name"]: self.of(f["type"], f"{path}.{f['name']}", nested=True)
            for f in schema["fields"]
        }
        self._open.remove(name)
        lines = [f"class {name}(TypedDict):", f"    {docstring(schema['doc'])}", ""]
        for f in schema["fields"]:
            lines += [f"    {f['name']}: {fields[f['name']].annotation}"]
            lines += [f"    {docstring(f['doc'])}"]
        struct = ", ".join(f'"{n}": {t.dtype}' for n, t in fields.items())
        kind = PythonType(name, f"pl.Struct({{{struct}}})")
        return self._define(name, kind, "\n".join(lines) + "\n")

    def _define(self, name: str, kind: PythonType, source: str) -> PythonType:
        if source and self.definitions.setdefault(name, source) != source:
            raise DeclarationError(f"{name} is defined twice, and differently")
        self._known[name] = kind
        return kind


def fitted(text: str, indent: int = 0, after: str = "") -> str:
    """An expression in source form as the formatter leaves it: on one line if it fits, else what is
    in its outer brackets on lines of its own. Strings in it hold no brackets and commas.
    """
    line = f"{' ' * indent}{text}{after}"
    if len(line) <= LINE_CHARS_MAX or text[-1] not in _CLOSING:
        return line
    begin = min(at for at in map(text.find, "([{") if at >= 0)
    parts = list(_parts(text[begin + 1 : -1]))
    comma = "," if len(parts) > 1 or text[begin] == "{" else ""
    inside = [fitted(part, indent + 4, comma) for part in parts]
    return "\n".join([line[: indent + begin + 1], *inside, " " * indent + text[-1] + after])


def _parts(text: str) -> Iterator[str]:
    """What commas separate outside of all brackets."""
    depth, part = 0, ""
    for char in text:
        depth += (char in "([{") - (char in _CLOSING)
        if char == "," and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += char
    if part.strip():
        yield part.strip()


def docstring(text: str) -> str:
    """A one-line docstring in source form."""
    escaped = text.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    if escaped.endswith('"'):
        escaped = escaped[:-1] + '\\"'
    return f'"""{escaped}"""'


def not_columnar(schema: Any, path: str, *, optional: bool = False) -> Iterator[str]:
    """Why `polars.read_avro` cannot read a type: nothing, or a reason per place.

    Found by trying (Polars 2.1): unions other than null and one type, maps and nulls are
    refused, and a nullable enum panics. A test tries every type against the installed Polars.
    """
    if isinstance(schema, list):
        inner = [branch for branch in schema if branch != "null"]
        if len(schema) != 2 or len(inner) != 1:
            yield f"{path}: a union other than of null and one type"
        else:
            yield from not_columnar(inner[0], path, optional=True)
        return
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in {"map", "null"}:
        yield f"{path}: a {kind}"
    elif kind == "enum" and optional:
        yield f"{path}: a nullable enum"
    elif kind == "array":
        yield from not_columnar(schema["items"], f"{path}[]")
    elif kind == "record":
        for f in schema["fields"]:
            yield from not_columnar(f["type"], f"{path}.{f['name']}")
