"""The generated modules: up to date, formatted, and what they say of rarer types."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from schemas.catalog import SYSTEMS, topics
from schemas.generate import generate, stale
from schemas.generate.declaration import SCHEMAS, DeclarationError, declared
from schemas.generate.render import render

MONEY = {
    "type": "record",
    "name": "Money",
    "doc": 'An amount, "exact".',
    "fields": [
        {"name": "units", "type": "long", "doc": "Minor units."},
        {"name": "currency", "type": "string", "doc": "ISO 4217."},
    ],
}
STATE = {"type": "enum", "name": "State", "symbols": ["OPEN", "PAID"], "default": "OPEN"}


def loaded(root: Path) -> ModuleType:
    """The generated module of the shop, run."""
    module = ModuleType("generated_shop")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(render(declared("shop", root)), "events.py", "exec"), vars(module))
    return module


def test_generating_leaves_no_diff() -> None:
    assert list(stale(SYSTEMS)) == []


def test_generated_text_is_as_the_formatter_leaves_it(
    shop: Any, make_order: Callable[..., Any]
) -> None:
    shop.schema(make_order(*_rare_fields()))
    shop.topics((shop.folder / "topics.toml").read_text().replace("true", "false"))
    generate(["shop"], shop.root)
    files = [SCHEMAS / system / "events.py" for system in SYSTEMS]
    files.append(shop.folder / "events.py")
    arguments = ["--config", str(SCHEMAS.parent / "pyproject.toml"), "--no-cache"]
    for command in (["format", "--check"], ["check", "--ignore", "E501,D,RUF"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *arguments, *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_writes_only_what_changed(shop: Any) -> None:
    path = shop.folder / "events.py"
    assert generate(["shop"], shop.root) == [path]
    assert generate(["shop"], shop.root) == []
    path.write_text(path.read_text() + "# by hand\n")
    assert list(stale(["shop"], shop.root)) == [path]
    assert generate(["shop"], shop.root) == [path]


def test_a_wrong_declaration_writes_nothing(shop: Any) -> None:
    shop.schema("{")
    with pytest.raises(DeclarationError):
        generate(["shop"], shop.root)
    assert not (shop.folder / "events.py").exists()


def _rare_fields() -> list[dict[str, Any]]:
    types: list[tuple[str, Any, dict[str, Any]]] = [
        ("total", MONEY, {}),
        ("refund", ["null", "Money"], {"default": None}),
        ("lines", {"type": "array", "items": "Money"}, {"default": []}),
        ("state", STATE, {"default": "OPEN"}),
        ("labels", {"type": "map", "values": "string"}, {"default": {}}),
        ("codes", {"type": "array", "items": "string"}, {"default": ["1"]}),
        ("blob", "bytes", {"default": "a"}),
        ("hash", {"type": "fixed", "name": "Hash", "size": 4}, {"default": 'ab"\u00ff'}),
        ("ratio", "double", {"default": 0.5}),
        ("gift", "boolean", {"default": False}),
        ("either", ["string", "long"], {"default": 'it\'s "x"\\'}),
    ]
    return [{"name": n, "type": t, "doc": f"The {n}.", **more} for n, t, more in types]


def test_rarer_types(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema(make_order(*_rare_fields()))
    shop.topics((shop.folder / "topics.toml").read_text().replace("true", "false"))
    module = loaded(shop.root)
    assert module.ORDER_PLACED.dtypes == {
        "order_id": pl.String,
        "placed_at": pl.Datetime("ms", "UTC"),
        "total": pl.Struct({"units": pl.Int64, "currency": pl.String}),
        "refund": pl.Struct({"units": pl.Int64, "currency": pl.String}),
        "lines": pl.List(pl.Struct({"units": pl.Int64, "currency": pl.String})),
        "state": pl.String,
        "labels": pl.Object,
        "codes": pl.List(pl.String),
        "blob": pl.Binary,
        "hash": pl.Binary,
        "ratio": pl.Float64,
        "gift": pl.Boolean,
        "either": pl.Object,
    }
    row = module.OrderPlaced("o-1", 1, {"units": 5, "currency": "EUR"})
    assert (row.refund, row.lines, row.state) == (None, [], "OPEN")
    assert (row.codes, row.blob, row.hash) == (["1"], b"a", b'ab"\xff')
    assert (row.ratio, row.gift, row.either) == (0.5, False, 'it\'s "x"\\')
    assert row.__annotations__["refund"] == "Money | None"
    assert row.__annotations__["either"] == "str | int"
    assert module.Money.__annotations__.keys() == {"units", "currency"}
    assert module.ORDERS.record("headrace.shop.OrderPlaced") is module.ORDER_PLACED


def test_rows_are_built_by_position(shop: Any, make_order: Callable[..., Any]) -> None:
    """A default before a field without one is not a default of the row."""
    note = {"name": "note", "type": ["null", "string"], "default": None, "doc": "A note."}
    tail = {"name": "tail", "type": "string", "doc": "Tail."}
    shop.schema(make_order(note, tail))
    row = loaded(shop.root).OrderPlaced("o-1", 1, None, "end")
    assert (row.note, row.tail) == (None, "end")


@pytest.mark.parametrize("name", sorted(topics()))
def test_rows_columns_and_schema_agree(name: str) -> None:
    for record in topics()[name].records:
        fields = [f["name"] for f in record.schema["fields"]]
        assert list(record.columns) == fields
        assert list(record.row.__dataclass_fields__) == fields  # type: ignore[attr-defined]
        assert record.fullname == f"{record.schema['namespace']}.{record.schema['name']}"


def test_topic_settings_reach_the_constant(shop: Any) -> None:
    text = (shop.folder / "topics.toml").read_text()
    text += 'retention_ms = 5_000\nretries = { mailer = [5_000, 30_000], "pa-ger" = [1] }\n'
    text += '[topic.config]\n"max.message.bytes" = "2000000"\n'
    shop.topics(text)
    topic = loaded(shop.root).ORDERS
    assert topic.retention_ms == 5_000
    assert topic.retries == {"mailer": (5_000, 30_000), "pa-ger": (1,)}
    assert topic.extra == {"max.message.bytes": "2000000"}
    assert topic.subject(topic.records[0]) == "shop.orders-headrace.shop.OrderPlaced"


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ({"type": "map", "values": "long"}, "OrderPlaced.extra: a map"),
        (["string", "long"], "OrderPlaced.extra: a union"),
        (["null", STATE], "OrderPlaced.extra: a nullable enum"),
        ({"type": "array", "items": ["null", "string", "int"]}, "OrderPlaced.extra[]: a union"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "timestamp-micros is not used"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, "decimal is not used"),
        (
            {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}},
            "timestamp-millis on a top-level field",
        ),
        ({**STATE, "default": "PAID", "symbols": ["OPEN", "PAID"]}, ""),
        ({k: v for k, v in STATE.items() if k != "default"}, "needs a default"),
        (
            {"type": "record", "name": "Tree", "doc": "T.", "fields": [
                {"name": "left", "type": ["null", "Tree"], "doc": "L."}]},
            "Tree contains itself",
        ),
    ],
)  # fmt: skip
def test_types_we_do_not_use(
    shop: Any, make_order: Callable[..., Any], type_: Any, message: str
) -> None:
    shop.schema(make_order({"name": "extra", "type": type_, "doc": "Extra."}))
    if not message:
        assert "EXTRA" not in vars(loaded(shop.root))
        return
    with pytest.raises(DeclarationError) as caught:
        render(declared("shop", shop.root))
    assert message in str(caught.value)
