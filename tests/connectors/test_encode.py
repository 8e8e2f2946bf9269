"""Strict where Avro encoders are lenient: nothing is dropped, wrapped, guessed or localised."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.encode import EncodeError, Encoder
from connectors.scalars import BadValue
from connectors.values import checker
from schemas import catalog
from schemas.ads import events
from streams.runtime.topic import RecordType

ENCODER = Encoder(events.EVENTS, {r.fullname: 258 for r in events.EVENTS.records})
CLICK: dict[str, Any] = {
    "click_id": "c",
    "user_id": "u",
    "campaign_id": "k",
    "ad_id": "a",
    "event_time": 1_767_225_600_000,
}


def decoded(value: bytes, record: RecordType) -> Any:
    body = io.BytesIO(value[5:])
    row = fastavro.schemaless_reader(body, fastavro.parse_schema(record.schema))
    assert body.read() == b""
    return row


def test_the_framing_is_confluents() -> None:
    key, value = ENCODER.encode("AdClicked", CLICK)

    assert key == b"u"
    assert value[:5] == b"\x00\x00\x00\x01\x02"
    row = decoded(value, events.AD_CLICKED)
    assert row["country"] == "ZZ"
    assert row["event_time"] == datetime(2026, 1, 1, tzinfo=UTC)


def test_dataclasses_and_full_names_are_taken_too() -> None:
    row = events.AdClicked("c", None, "u", "k", "a", 1_767_225_600_000)

    assert ENCODER.encode("headrace.ads.AdClicked", row) == ENCODER.encode("AdClicked", CLICK)


@given(st.data())
def test_what_is_encoded_is_what_was_given(data: st.DataObject) -> None:
    known = [(t, r) for t in catalog.topics().values() for r in t.records if t.key in r.columns]
    topic, record = data.draw(st.sampled_from(known))
    kinds: dict[Any, st.SearchStrategy[Any]] = {
        "String": st.text(max_size=20),
        "Int32": st.integers(-(2**31), 2**31 - 1),
        "Int64": st.integers(-(2**63), 2**63 - 1),
        "Float64": st.floats(allow_nan=False, allow_infinity=False),
        "Boolean": st.booleans(),
    }
    row: dict[str, Any] = {}
    for field in record.schema["fields"]:
        kind = field["type"]
        if isinstance(kind, dict) and kind["type"] == "enum":
            row[field["name"]] = data.draw(st.sampled_from(kind["symbols"]))
        elif isinstance(record.dtypes[field["name"]], pl.List):
            row[field["name"]] = []
        elif isinstance(record.dtypes[field["name"]], pl.Datetime):
            row[field["name"]] = data.draw(st.integers(0, 4 * 10**12))
        else:
            row[field["name"]] = data.draw(kinds[str(record.dtypes[field["name"]])])
    row[topic.key] = data.draw(st.text(min_size=1, max_size=20))

    key, value = Encoder(topic, {r.fullname: 1 for r in topic.records}).encode(record.name, row)

    assert key.decode() == row[topic.key]
    read = decoded(value, record)
    for name, found in read.items():
        if isinstance(found, datetime):
            read[name] = round(found.timestamp() * 1_000)
    assert read == row


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("cost_micros", 2**63, "outside of long"),
        ("cost_micros", 1.0, "not an integer"),
        ("cost_micros", True, "not an integer"),
        ("cost_micros", "1", "not an integer"),
        ("cost_micros", None, "not an integer"),
        ("click_id", 5, "not a string"),
        ("click_id", None, "not a string"),
        ("click_id", "\ud83d", "surrogate"),
        ("user_agent", b"x", "not a string"),
        ("event_time", datetime(2024, 1, 1), "no time zone"),
        ("event_time", 253_402_300_800_000, "wrong unit"),
        ("event_time", 2**62, "wrong unit"),
        ("event_time", -62_135_596_800_001, "wrong unit"),
        ("event_time", 1.5, "neither"),
        ("event_time", "2024-01-01T00:00:00Z", "neither"),
        ("user_id", "", "record key"),
        ("user_id", "x" * 1_025, "record key"),
        ("colour", "red", "unknown field"),
    ],
)
def test_a_wrong_value_is_refused_by_name(field: str, value: object, reason: str) -> None:
    with pytest.raises(EncodeError) as refused:
        ENCODER.encode("AdClicked", {**CLICK, field: value})

    assert (refused.value.record, refused.value.field) == ("AdClicked", field)
    assert reason in refused.value.reason
    assert str(refused.value).startswith(f"AdClicked.{field}: ")


def test_a_missing_field_is_refused_by_name() -> None:
    row = {name: value for name, value in CLICK.items() if name != "ad_id"}

    with pytest.raises(EncodeError, match=r"AdClicked\.ad_id: missing"):
        ENCODER.encode("AdClicked", row)


@pytest.mark.parametrize("row", [None, [], "text", 5, [("click_id", "c")]])
def test_what_is_no_record_is_refused(row: object) -> None:
    with pytest.raises(EncodeError, match="not a record"):
        ENCODER.encode("AdClicked", row)


def test_a_record_that_the_topic_has_not_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="carries"):
        ENCODER.encode("AdBought", CLICK)


def test_every_record_needs_an_id() -> None:
    with pytest.raises(ValueError, match="AdImpressed"):
        Encoder(events.EVENTS, {"headrace.ads.AdClicked": 1})


def test_one_instant_whatever_its_zone_and_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    utc = datetime(2024, 1, 1, 0, 0, 0, 1_999, tzinfo=UTC)
    elsewhere = utc.astimezone(timezone(timedelta(hours=-5, minutes=-30)))
    check = checker({"type": "long", "logicalType": "timestamp-millis"})

    assert check(utc) == check(elsewhere) == 1_704_067_200_001


CARD = {
    "type": "record",
    "name": "Card",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
BANK = {
    "type": "record",
    "name": "Bank",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "iban", "type": ["null", "string"], "default": None},
    ],
}


class TestValues:
    """The rest of Avro, which today's topics do not use yet."""

    def test_a_union_of_records_is_never_guessed(self) -> None:
        check = checker([CARD, BANK])

        assert check({"id": "x", "iban": "y"})[0] == "Bank"
        with pytest.raises(BadValue, match="fits 2 branches"):
            check({"id": "x"})
        with pytest.raises(BadValue, match="fits 0 branches"):
            check({"id": "x", "typo": "y"})

    @pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 1.5, True, "1", None])
    def test_an_int_has_32_bits(self, value: object) -> None:
        with pytest.raises(BadValue):
            checker("int")(value)

    @pytest.mark.parametrize(
        "value",
        [
            Decimal("1.005"),
            Decimal("NaN"),
            Decimal("Infinity"),
            Decimal("123456789.00"),
            Decimal("1e9"),
            0.1,
            1,
            "1.00",
        ],
    )
    def test_a_decimal_is_exact_or_refused(self, value: object) -> None:
        check = checker({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2})

        assert check(Decimal("12345678.90")) == Decimal("12345678.90")
        with pytest.raises(BadValue):
            check(value)

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, "1", True, None])
    def test_a_double_is_finite(self, value: object) -> None:
        with pytest.raises(BadValue):
            checker("double")(value)

    def test_a_float_has_32_bits(self) -> None:
        assert checker("float")(3.4e38) == 3.4e38
        with pytest.raises(BadValue, match="32-bit"):
            checker("float")(1e39)

    def test_an_enum_has_its_symbols(self) -> None:
        check = checker({"type": "enum", "name": "E", "symbols": ["A", "B"]})

        assert check("A") == "A"
        for wrong in ("C", "", None, 0, ["A"]):
            with pytest.raises(BadValue):
                check(wrong)

    def test_an_error_says_where_it_is(self) -> None:
        line = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
        order = {
            "type": "record",
            "name": "Order",
            "fields": [
                {"name": "lines", "type": {"type": "array", "items": line}},
                {"name": "notes", "type": {"type": "map", "values": "string"}, "default": {}},
            ],
        }
        with pytest.raises(BadValue) as refused:
            checker(order)({"lines": [{"n": 1}, {"n": "x"}]})

        assert refused.value.path == ("lines", 1, "n")
        with pytest.raises(BadValue, match=r"notes\.k: 1 is not a string"):
            checker(order)({"lines": [], "notes": {"k": 1}})

    def test_a_record_may_hold_itself(self) -> None:
        tree = json.loads(
            '{"type": "record", "name": "Tree", "namespace": "t", "fields": ['
            '{"name": "next", "type": ["null", "t.Tree"], "default": null}]}'
        )
        check = checker(tree)

        assert check({"next": {"next": None}}) == {"next": {"next": None}}
        with pytest.raises(BadValue, match=r"next\.next: 5"):
            check({"next": {"next": 5}})

    @pytest.mark.parametrize("value", ["x" * 10_000, 10**10_000, -(10**10_000)], ids=type)
    def test_a_long_value_is_not_repeated_in_full(self, value: object) -> None:
        with pytest.raises(BadValue) as refused:
            checker("int")(value)

        assert len(refused.value.reason) < 100
