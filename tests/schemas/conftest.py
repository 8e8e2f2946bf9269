"""A small system in a folder of its own, to be declared wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TIMESTAMP = {"type": "long", "logicalType": "timestamp-millis"}

TOPIC = """
[[topic]]
name = "shop.orders"
doc = "Orders."
owner = "shop"
readers = ["shop"]
records = ["OrderPlaced"]
key = "order_id"
event_time = "placed_at"
partitions = 2
columnar = true
"""


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "doc": f"The {name}.", **more}


def order_placed(*fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "OrderPlaced",
        "namespace": "headrace.shop",
        "doc": "An order was placed.",
        "fields": [field("order_id", "string"), field("placed_at", TIMESTAMP), *fields],
    }


class Shop:
    """Writes the system's files; `root` is what stands for `schemas/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "shop"
        (self.folder / "examples").mkdir(parents=True)
        self.topics(TOPIC)
        self.schema(order_placed())

    def topics(self, text: str) -> None:
        (self.folder / "topics.toml").write_text(text, encoding="utf-8")

    def schema(self, schema: Any, file: str = "order_placed.v1.avsc") -> None:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        (self.folder / file).write_text(text, encoding="utf-8")

    def example(self, content: Any, file: str = "order_placed.v1.json") -> Path:
        path = self.folder / "examples" / file
        path.write_text(json.dumps(content), encoding="utf-8")
        return path


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "schemas")


@pytest.fixture
def make_order() -> Callable[..., dict[str, Any]]:
    return order_placed
