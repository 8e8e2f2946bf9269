"""What a system may declare, and that a wrong declaration names file and field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from schemas.catalog import SYSTEMS
from schemas.generate.declaration import DeclarationError, declared, snake


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_real_systems_are_declared_rightly(system: str) -> None:
    declaration = declared(system)
    assert declaration.topics
    for topic in declaration.topics:
        assert topic.owner in SYSTEMS
        assert set(topic.readers) <= set(SYSTEMS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("AdClicked", "ad_clicked"),
        ("URLShortened", "url_shortened"),
        ("Order2Placed", "order2_placed"),
        ("Placed", "placed"),
    ],
)
def test_snake(name: str, expected: str) -> None:
    assert snake(name) == expected


def test_the_newest_version_is_the_readers(shop: Any, make_order: Callable[..., Any]) -> None:
    newer = {"name": "note", "type": ["null", "string"], "default": None, "doc": "A note."}
    shop.schema(make_order(newer), "order_placed.v2.avsc")
    found = declared("shop", shop.root)
    assert [file.version for file in found.records["OrderPlaced"]] == [1, 2]
    assert [f["name"] for f in found.newest("OrderPlaced").schema["fields"]][-1] == "note"


@pytest.mark.parametrize("version", range(1, 12))
def test_versions_are_ordered_as_numbers(
    shop: Any, make_order: Callable[..., Any], version: int
) -> None:
    for n in range(2, version + 1):
        shop.schema(make_order(), f"order_placed.v{n}.avsc")
    assert declared("shop", shop.root).newest("OrderPlaced").version == version


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('key = "order_id"', 'key = "customer_id"', "key customer_id must be a string"),
        ('key = "order_id"', 'key = "placed_at"', "key placed_at must be a string"),
        ('event_time = "placed_at"', 'event_time = "order_id"', "timestamp-millis"),
        ("partitions = ", "retries = { mailer = [] }\npartitions = ", "retries of mailer"),
        ("partitions = ", "retries = { mailer = [9, 5] }\npartitions = ", "not ascending"),
        ("partitions = ", "retries = { mailer = [5, 5] }\npartitions = ", "not ascending"),
        ("partitions = ", "retries = { mailer = [0, 5] }\npartitions = ", "not ascending"),
        ('event_time = "placed_at"', 'event_time = "nope"', "timestamp-millis"),
        ('records = ["OrderPlaced"]', 'records = ["OrderPaid"]', "no .avsc of OrderPaid"),
        ('records = ["OrderPlaced"]', "records = []", "records"),
        ("partitions = 2", "partitions = 0", "partitions"),
        ("partitions = 2", 'partitions = "2"', "partitions"),
        ('owner = "shop"', 'owner = ""', "owner"),
        ('owner = "shop"\n', "", "owner"),
        ("partitions = 2", "partitions = 2\nretention = 1", "retention"),
        ("shop.orders", "store.orders", "start with shop."),
        ("shop.orders", "shop.orders.dlq", "derived"),
        ("shop.orders", "shop.Orders", "name"),
        ("[[topic]]", "[[topics]]", "only [[topic]]"),
        ("[[topic]]", "[[topic", "topics.toml"),
    ],
)
def test_a_wrong_topic_is_refused(shop: Any, old: str, new: str, message: str) -> None:
    text = (shop.folder / "topics.toml").read_text()
    assert old in text
    shop.topics(text.replace(old, new))
    with pytest.raises(DeclarationError, match=r"topics\.toml") as caught:
        declared("shop", shop.root)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"doc": ""}, "OrderPlaced.extra has no doc"),
        ({"aliases": ["other"]}, "OrderPlaced.extra has aliases"),
        ({"default": 1}, "OrderPlaced.extra: default 1 does not fit"),
        ({"type": "long", "default": True}, "default true does not fit"),
        ({"type": "long", "default": 2**63}, "does not fit"),
        ({"type": "int", "default": 2**31}, "does not fit"),
        ({"type": ["string", "null"], "default": None}, "default null does not fit"),
        ({"type": "nonsense"}, "not an Avro schema"),
        (
            {"type": {"type": "enum", "name": "E", "symbols": ["A"]}, "default": "B"},
            'default "B" does not fit',
        ),
        (
            {"type": {"type": "record", "name": "R", "doc": "R.", "fields": [
                {"name": "x", "type": "int"}]}},
            "OrderPlaced.extra.x has no doc",
        ),
        (
            {"type": {"type": "array", "items": {"type": "record", "name": "R", "fields": []}}},
            "OrderPlaced.extra has no doc",
        ),
    ],
)  # fmt: skip
def test_a_wrong_field_is_refused(
    shop: Any, make_order: Callable[..., Any], more: dict[str, Any], message: str
) -> None:
    shop.schema(make_order({"name": "extra", "type": "string", "doc": "Extra.", **more}))
    with pytest.raises(DeclarationError, match=r"order_placed\.v1\.avsc") as caught:
        declared("shop", shop.root)
    assert message in str(caught.value)


def test_files_are_named_after_their_record(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema(make_order(), "placed.v1.avsc")
    with pytest.raises(DeclarationError, match=r"name it order_placed\.v1\.avsc"):
        declared("shop", shop.root)


@pytest.mark.parametrize("file", ["order_placed.avsc", "OrderPlaced.v1.avsc", "x.v0.avsc"])
def test_files_carry_a_version(shop: Any, make_order: Callable[..., Any], file: str) -> None:
    shop.schema(make_order(), file)
    with pytest.raises(DeclarationError, match="name it <record_name_snake>"):
        declared("shop", shop.root)


def test_versions_have_no_hole(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema(make_order(), "order_placed.v3.avsc")
    with pytest.raises(DeclarationError, match="hole"):
        declared("shop", shop.root)


def test_the_namespace_is_the_systems(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema({**make_order(), "namespace": "headrace.store"})
    with pytest.raises(DeclarationError, match=r"namespace must be headrace\.shop"):
        declared("shop", shop.root)


def test_a_record_without_a_topic_is_refused(shop: Any, make_order: Callable[..., Any]) -> None:
    shop.schema({**make_order(), "name": "OrderPaid"}, "order_paid.v1.avsc")
    with pytest.raises(DeclarationError, match="no topic carries OrderPaid"):
        declared("shop", shop.root)


def test_a_topic_is_declared_once(shop: Any) -> None:
    shop.topics((shop.folder / "topics.toml").read_text() * 2)
    with pytest.raises(DeclarationError, match="twice"):
        declared("shop", shop.root)


@pytest.mark.parametrize("text", ["{", '"string"', "[]"])
def test_what_is_no_record_is_refused(shop: Any, text: str) -> None:
    shop.schema(text)
    with pytest.raises(DeclarationError, match=r"order_placed\.v1\.avsc"):
        declared("shop", shop.root)


def test_a_system_needs_its_topics(shop: Any) -> None:
    with pytest.raises(DeclarationError, match="is missing"):
        declared("store", shop.root)
