"""Breaks are found, and named by field; fastavro is the oracle of what can be read."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.compatibility import breaks, changed_defaults

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def record(*fields: dict[str, Any], name: str = "Bought", namespace: str = "shop") -> Any:
    return {"type": "record", "name": name, "namespace": namespace, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **more}


def item(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Item", "fields": [field("sku", "string"), *fields]}


def fixed(size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "Hash", "size": size}


ID = field("id", "string")
PRICE = field("price", "int")
BREAKS = [
    ("added", record(ID), record(ID, PRICE), "Bought.price: added without a default", "backward"),
    ("removed", record(ID, PRICE), record(ID), "Bought.price: removed, and it had", "forward"),
    (
        "renamed",
        record(ID, PRICE),
        record(ID, field("cost", "int", default=0)),
        "Bought.price: removed",
        "forward",
    ),
    (
        "renamed with an alias",
        record(ID, PRICE),
        record(ID, field("cost", "int", aliases=["price"])),
        "Bought.cost: added without",
        "backward",
    ),
    ("type", record(PRICE), record(field("price", "string")), "from int to string", "both"),
    ("widened", record(PRICE), record(field("price", "long")), "from int to long", "forward"),
    ("narrowed", record(field("p", "double")), record(field("p", "float")), "p: type", "backward"),
    (
        "string and bytes",
        record(field("a", "string")),
        record(field("a", "bytes")),
        "type changed from string to bytes",
        "both",
    ),
    ("nullable", record(PRICE), record(field("price", ["null", "int"])), "null added", "forward"),
    (
        "no longer nullable",
        record(field("price", ["null", "int"])),
        record(PRICE),
        "Bought.price: union member null dropped",
        "backward",
    ),
    (
        "member dropped",
        record(field("a", ["null", "string", "long"])),
        record(field("a", ["null", "string"])),
        "Bought.a: union member long dropped",
        "backward",
    ),
    (
        "member added",
        record(field("a", ["null", "string"])),
        record(field("a", ["null", "string", "long"])),
        "Bought.a: union member long added",
        "forward",
    ),
    (
        "record inside a union",
        record(field("a", ["null", item()])),
        record(field("a", ["null", item(field("price", "int"))])),
        "Bought.a.price: added without a default",
        "backward",
    ),
    (
        "record inside a union inside an array",
        record(field("a", {"type": "array", "items": ["null", item(field("price", "int"))]})),
        record(field("a", {"type": "array", "items": ["null", item()]})),
        "Bought.a[].price: removed",
        "forward",
    ),
    (
        "record inside a map",
        record(field("a", {"type": "map", "values": item()})),
        record(field("a", {"type": "map", "values": item(field("price", "int"))})),
        "Bought.a{}.price: added without a default",
        "backward",
    ),
    (
        "symbol removed",
        record(field("a", enum("RED", "BLUE"))),
        record(field("a", enum("RED"))),
        "Bought.a: enum symbol BLUE removed",
        "backward",
    ),
    (
        "symbol added",
        record(field("a", enum("RED"))),
        record(field("a", enum("RED", "BLUE", default="RED"))),
        "Bought.a: enum symbol BLUE added, and the old enum has no default",
        "forward",
    ),
    (
        "enum renamed",
        record(field("a", enum("RED"))),
        record(field("a", {**enum("RED"), "name": "Color"})),
        "type changed from Colour to Color",
        "both",
    ),
    (
        "enum to string",
        record(field("a", enum("RED"))),
        record(field("a", "string")),
        "type changed from Colour to string",
        "both",
    ),
    (
        "fixed size",
        record(field("a", fixed(8))),
        record(field("a", fixed(16))),
        "Bought.a: fixed size changed from 8 to 16",
        "both",
    ),
    (
        "logical type",
        record(field("at", MILLIS)),
        record(field("at", MICROS)),
        "Bought.at: type changed from timestamp-millis to timestamp-micros",
        "both",
    ),
    (
        "logical type lost",
        record(field("at", MILLIS)),
        record(field("at", "long")),
        "Bought.at: type changed from timestamp-millis to long",
        "both",
    ),
    (
        "decimal scale",
        record(field("a", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2})),
        record(field("a", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4})),
        "Bought.a: type changed",
        "both",
    ),
    ("record renamed", record(ID), record(ID, name="Sold"), "from Bought to Sold", "both"),
    (
        "named type by reference",
        record(field("a", item()), field("b", "Item")),
        record(field("a", item(PRICE)), field("b", "Item")),
        "Bought.b.price: added without a default",
        "backward",
    ),
    (
        "inside a record that contains itself",
        record(field("next", ["null", "Bought"])),
        record(field("next", ["null", "Bought"]), PRICE),
        "Bought.price: added without a default",
        "backward",
    ),
]


@pytest.mark.parametrize(("old", "new", "message", "direction"), [b[1:] for b in BREAKS],
                         ids=[b[0] for b in BREAKS])  # fmt: skip
def test_a_break_names_the_field_and_the_reason(
    old: Any, new: Any, message: str, direction: str
) -> None:
    found = {str(b): b.direction for b in breaks(old, new)}
    assert [d for text, d in found.items() if message in text] == [direction], found


@pytest.mark.parametrize(("old", "new"), [b[1:3] for b in BREAKS], ids=[b[0] for b in BREAKS])
def test_the_way_back_breaks_too(old: Any, new: Any) -> None:
    def paths(a: Any, b: Any) -> set[str]:
        return {found.path.partition(".")[2] for found in breaks(a, b)}

    assert paths(old, new) == paths(new, old)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (record(ID), record(ID)),
        (record(ID), record(ID, field("price", "int", default=0))),
        (record(ID, field("price", "int", default=0)), record(ID)),
        (record(ID, PRICE), record(PRICE, ID)),
        (record(ID), record({**ID, "doc": "The id."})),
        (record(ID), record(field("id", {"type": "string"}))),
        (
            record(field("a", ["null", "string"])),
            record(field("a", ["string", "null"], default="x")),
        ),
        (
            record(field("a", enum("RED", default="RED"))),
            record(field("a", enum("RED", "BLUE", default="RED"))),
        ),
        (
            record(field("a", ["null", item()])),
            record(field("a", ["null", item(field("price", "int", default=0))])),
        ),
        (record(field("next", ["null", "Bought"])), record(field("next", ["null", "Bought"]))),
    ],
)
def test_what_may_change(old: Any, new: Any) -> None:
    assert breaks(old, new) == ()


def test_all_breaks_are_named() -> None:
    old = record(ID, PRICE, field("colour", enum("RED", "BLUE")))
    new = record(field("id", "long"), field("colour", enum("RED")), field("size", "int"))
    paths = [b.path for b in breaks(old, new)]
    assert paths == ["Bought.colour", "Bought.id", "Bought.price", "Bought.size"]


def test_a_default_may_not_change_while_events_lack_the_field() -> None:
    v1 = record(ID)
    v2 = record(ID, field("price", "int", default=0))
    v3 = record(ID, field("price", "int", default=1))
    assert breaks(v2, v3) == ()
    [found] = changed_defaults([v1, v2, v3])
    assert (found.path, found.direction) == ("Bought.price", "backward")
    assert "default changed from 0 to 1" in found.reason
    assert changed_defaults([v1, v2]) == ()
    assert changed_defaults([v2, v3]) == ()  # every event has the field
    assert changed_defaults([v1]) == ()


# The oracle: two schemas drawn independently over the same names, and data for every branch.

PRIMITIVES = ("int", "long", "float", "double", "string", "boolean")
SAMPLES = {
    "null": [None],
    "int": [0, -7],
    "long": [2**40],
    "float": [0.5],
    "double": [0.25],
    "string": ["a", ""],
    "boolean": [True, False],
}
FIRST = {"null": None, "int": 1, "long": 1, "float": 0.5, "double": 0.5, "string": "d"}


@st.composite
def enums(draw: st.DrawFn, path: str) -> dict[str, Any]:
    symbols = draw(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, unique=True))
    made = {"type": "enum", "name": f"E{path}", "symbols": symbols}
    return {**made, "default": symbols[0]} if draw(st.booleans()) else made


@st.composite
def types(draw: st.DrawFn, path: str, depth: int, union: bool = True) -> Any:
    kinds = ["primitive", "primitive", "enum"]
    kinds += ["array", "record"] if depth else []
    kinds += ["union"] if union else []
    match draw(st.sampled_from(kinds)):
        case "enum":
            return draw(enums(path))
        case "array":
            return {"type": "array", "items": draw(types(f"{path}i", depth - 1))}
        case "record":
            return draw(records(f"R{path}", depth - 1))
        case "union":
            inner = draw(types(path, depth, union=False))
            rest = [p for p in PRIMITIVES if p != inner]
            more = draw(st.lists(st.sampled_from(rest), max_size=1))
            return draw(st.permutations(["null", inner, *more]))
        case _:
            return draw(st.sampled_from(PRIMITIVES))


@st.composite
def records(draw: st.DrawFn, name: str = "Top", depth: int = 2) -> dict[str, Any]:
    fields = []
    for n in draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True)):
        made = {"name": n, "type": draw(types(f"{name}{n}", depth))}
        first = made["type"][0] if isinstance(made["type"], list) else made["type"]
        if isinstance(first, str) and first in FIRST and draw(st.booleans()):
            made["default"] = FIRST[first]
        fields.append(made)
    return {"type": "record", "name": name, "fields": fields}


def samples(schema: Any) -> list[Any]:
    """Values that between them use every branch and every symbol of a schema."""
    if isinstance(schema, list):
        return [(_branch(branch), v) if isinstance(branch, dict) and branch["type"] == "record"
                else v for branch in schema for v in samples(branch)]  # fmt: skip
    if isinstance(schema, str):
        return SAMPLES[schema]
    match schema["type"]:
        case "enum":
            return list(schema["symbols"])
        case "array":
            return [[], samples(schema["items"])]
        case _:
            columns = {f["name"]: samples(f["type"]) for f in schema["fields"]}
            rows = max(len(values) for values in columns.values())
            return [{n: v[i % len(v)] for n, v in columns.items()} for i in range(rows)]


def _branch(schema: dict[str, Any]) -> str:
    return str(schema["name"])


def unreadable(reader: Any, writer: Any) -> str | None:
    """Why fastavro cannot read some sample, or None."""
    for sample in samples(writer):
        body = io.BytesIO()
        fastavro.schemaless_writer(body, writer, sample)
        body.seek(0)
        try:
            fastavro.schemaless_reader(body, writer, reader)
        except (fastavro.read.SchemaResolutionError, ValueError, KeyError, TypeError) as error:
            return repr(error)
    return None


@st.composite
def neighbours(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two schemas that differ in one field: gone, with another type, or in another place."""
    old = draw(records())
    fields = draw(st.permutations(old["fields"]))
    if draw(st.booleans()):
        name = fields[0]["name"]
        fields = [*fields[1:], {"name": name, "type": draw(types(f"Top{name}", 1))}]
    elif len(fields) > 1:
        fields = fields[1:]
    return old, {**old, "fields": fields}


@given(st.one_of(neighbours(), st.tuples(records(), records())))
def test_no_break_exactly_where_fastavro_reads_everything(pair: tuple[Any, Any]) -> None:
    old, new = pair
    found = breaks(old, new)
    backward = any(b.direction in ("backward", "both") for b in found)
    forward = any(b.direction in ("forward", "both") for b in found)
    assert backward == (unreadable(new, old) is not None), (found, unreadable(new, old))
    assert forward == (unreadable(old, new) is not None), (found, unreadable(old, new))


@given(records())
def test_a_schema_reads_itself(schema: Any) -> None:
    assert breaks(schema, schema) == ()
    assert unreadable(schema, schema) is None
