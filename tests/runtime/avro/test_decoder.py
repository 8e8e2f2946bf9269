"""The promise: every value once, neighbours unharmed, reasons that name what was wrong."""

import pytest

from streams.runtime.avro import Decoder, MemorySource
from tests.runtime.avro.wire import (
    CLICK,
    CLICK_DTYPES,
    click,
    clicks,
    record_type,
    rows_of,
    topic,
)

RECORD = record_type(CLICK, CLICK_DTYPES)
TOPIC = topic(RECORD)
SOURCE = MemorySource({1: CLICK})


def test_all_good_rows_come_out_in_order_with_the_readers_dtypes() -> None:
    decoded = Decoder(TOPIC, SOURCE).decode(clicks(100))
    frame = decoded.frames["test.Click"]
    assert dict(frame.drop("_row").schema) == CLICK_DTYPES
    assert rows_of(frame) == [{"_row": i, **click(i)} for i in range(100)]
    assert not decoded.dead and not decoded.tombstones


def test_only_the_columns_asked_for_in_schema_order() -> None:
    columns = {"test.Click": ["event_time", "campaign_id"]}
    frame = Decoder(TOPIC, SOURCE, columns).decode(clicks(3)).frames["test.Click"]
    assert frame.columns == ["_row", "campaign_id", "event_time"]


def test_an_unknown_column_is_refused_at_once() -> None:
    with pytest.raises(KeyError, match="no field clickid"):
        Decoder(TOPIC, SOURCE, {"test.Click": ["clickid"]})


def test_each_kind_of_bad_value_has_its_reason_and_the_rest_is_kept() -> None:
    values: list[bytes | None] = list(clicks(200))
    good = clicks(1)[0]
    values[3] = None
    values[7] = good[:-3]
    values[9] = b""
    values[10] = b"\x01" + good[1:]
    values[11] = good + b"xxxx"
    values[12] = b"\x00\x00\x00\x00\x4d" + good[5:]
    values[13] = good[:4]
    decoded = Decoder(TOPIC, SOURCE).decode(values)
    assert {d.row: d.reason for d in decoded.dead} == {
        7: "body ends early",
        9: "framing: empty value",
        10: "framing: magic byte 0x01",
        11: "4 bytes after the record",
        12: "schema id 77 is not in the registry",
        13: "framing: 4 bytes",
    }
    assert decoded.tombstones == [3]
    bad = {3, 7, 9, 10, 11, 12, 13}
    assert rows_of(decoded.frames["test.Click"]) == [
        {"_row": i, **click(i)} for i in range(200) if i not in bad
    ]


def test_nothing_in_nothing_out() -> None:
    decoded = Decoder(TOPIC, SOURCE).decode([])
    assert not decoded.frames and not decoded.dead and not decoded.tombstones
