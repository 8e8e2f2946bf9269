"""The promise: every value once, neighbours unharmed, reasons that name what was wrong."""

import math

import polars as pl
import pytest

from streams.runtime.avro import Decoder, MemorySource, RowsMissing
from streams.runtime.avro.container import Container
from streams.runtime.avro.decoder import Dead, Decoded, check_fates
from tests.runtime.avro.wire import (
    CLICK,
    CLICK_DTYPES,
    click,
    clicks,
    encode,
    record_schema,
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


@pytest.mark.parametrize("bad", [1, 3, 10])
def test_a_few_bad_values_cost_a_few_reads(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 4_096
    values = clicks(count)
    for k in range(bad):
        values[k * count // bad + 17] += b"x"
    reads: list[int] = []
    read = Container.read

    def counted(self: Container, span: list[bytes], header: bytes) -> object:
        reads.append(len(span))
        return read(self, span, header)

    monkeypatch.setattr(Container, "read", counted)
    decoded = Decoder(TOPIC, SOURCE).decode(values)
    assert len(decoded.dead) == bad
    assert len(reads) <= 2 + 2 * bad * math.log2(count)
    assert sum(reads) <= count * (3 + 2 * math.log2(bad + 1))


def test_python_values_keep_their_order_over_schema_versions_and_bad_rows() -> None:
    counts = {"name": "m", "type": {"type": "map", "values": "long"}}
    old = record_schema(counts)
    new = record_schema({"name": "extra", "type": "long"}, counts)
    record = record_type(old, {"m": pl.Object})
    values = [
        encode(old, {"m": {"i": i}})[0]
        if i % 2
        else encode(new, {"m": {"i": i}, "extra": 1}, schema_id=2)[0]
        for i in range(40)
    ]
    values[20] += b"x"
    decoded = Decoder(topic(record), MemorySource({1: old, 2: new})).decode(values)
    frame = decoded.frames["test.R"]
    assert [d.row for d in decoded.dead] == [20]
    assert frame["_row"].to_list() == [i for i in range(40) if i != 20]
    assert [m["i"] for m in frame["m"].to_list()] == frame["_row"].to_list()


def test_a_value_without_a_fate_or_with_two_is_an_error_of_ours() -> None:
    with pytest.raises(RowsMissing):
        check_fates(Decoded({}, [Dead(0, "x")], [0]), 2)
    with pytest.raises(RowsMissing):
        check_fates(Decoded({}, [Dead(0, "x")], []), 2)
    with pytest.raises(RowsMissing):
        check_fates(Decoded({}, [Dead(0, "x")], [1, 2]), 2)


def test_only_tombstones() -> None:
    assert Decoder(TOPIC, SOURCE).decode([None, None]).tombstones == [0, 1]


@pytest.mark.parametrize(
    "dtype", [pl.Int64, pl.List(pl.Int64), pl.Struct({"k": pl.Object})], ids=str
)
def test_a_wrong_dtype_in_the_catalogue_is_loud_and_not_poison(dtype: object) -> None:
    schema = record_schema({"name": "m", "type": {"type": "map", "values": "long"}})
    decoder = Decoder(topic(record_type(schema, {"m": dtype})), MemorySource({1: schema}))
    with pytest.raises(TypeError, match="field m cannot be"):
        decoder.decode(encode(schema, {"m": {"a": 1}}))
