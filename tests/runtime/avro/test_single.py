"""A record read alone is what the columns make of it, whatever is done to its bytes."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import fastavro
import polars as pl
import pytest

from schemas import catalog
from streams.runtime.avro import ROW, Decoder, MemorySource
from streams.runtime.avro.schema import RANGES, Type, parse, without_logical
from streams.runtime.avro.typed import typed
from streams.runtime.topic import RecordType, Topic
from tests.runtime.avro.wire import record_schema, record_type

LONGS = (-(2**63), 2**63 - 1)
CASES = [(topic, record) for topic in catalog.topics().values() for record in topic.records]


def made(t: Type, random: Random) -> Any:
    """Some value of a type, its borders often."""
    match t.kind:
        case "union":
            return made(random.choice(t.branches), random)
        case "record":
            return {field.name: made(field.type, random) for field in t.fields}
        case "array" if t.items:
            return [made(t.items, random) for _ in range(random.randrange(3))]
        case "map" if t.items:
            return {f"k{n}": made(t.items, random) for n in range(random.randrange(3))}
        case "enum":
            return random.choice(t.symbols)
        case "string":
            return "".join(random.choices("aZ0 .é€😀\0", k=random.randrange(80)))
        case "bytes":
            return random.randbytes(random.randrange(9))
        case "boolean":
            return random.random() < 0.5
        case "int" | "long":
            low, high = RANGES.get(t.logical) or RANGES.get(t.kind, LONGS)
            return random.choice((low, high, 0, random.randint(low, high)))
        case "float" | "double":
            return random.choice((0.0, -1.5, 1e30))
    return None


def written(schema: Any, record: Any) -> bytes:
    sink = io.BytesIO(b"\0\0\0\0\1")
    sink.seek(5)
    fastavro.schemaless_writer(sink, fastavro.parse_schema(without_logical(schema)), record)
    return sink.getvalue()


def spoilt(value: bytes, random: Random) -> bytes:
    """The same, a byte changed, cut, or with more behind it."""
    at = random.randrange(len(value))
    return random.choice(
        (
            value,
            value[:at] + random.randbytes(1) + value[at + 1 :],
            value[:at],
            value + random.randbytes(1),
        )
    )


@pytest.mark.parametrize(("topic", "record"), CASES, ids=lambda one: one.name)
def test_alone_or_in_columns_it_is_the_same(topic: Topic, record: RecordType) -> None:
    decoder = Decoder(topic, MemorySource({1: record.schema}))
    random = Random(record.fullname)
    alone = 0
    for _ in range(25):
        value = spoilt(written(record.schema, made(parse(record.schema), random)), random)
        single = decoder.single(value)
        if single is None:
            continue
        alone += 1
        frame = decoder.decode([value]).frames[record.fullname].drop(ROW)
        assert [single] == [(record.fullname, row) for row in typed(dict_of(record), frame)]
    if topic.name.endswith(".commands"):
        assert alone


def dict_of(record: RecordType) -> Any:
    return lambda *values: dict(zip(record.columns, values, strict=True))


@pytest.mark.parametrize(
    ("kind", "dtype_of"),
    [
        ({"type": "int", "logicalType": "time-millis"}, "Time"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "Decimal"),
        ({"type": "map", "values": "string"}, "Object"),
        (["string", "long"], "Object"),
    ],
)
def test_what_must_be_converted_is_left_to_the_columns(kind: Any, dtype_of: str) -> None:
    schema = record_schema({"name": "a", "type": kind})
    dtype = pl.Decimal(9, 2) if dtype_of == "Decimal" else getattr(pl, dtype_of)
    topic = Topic(
        "t", (record_type(schema, {"a": dtype}),), key="a", event_time=None, partitions=1,
        owner="test", doc="",
    )  # fmt: skip
    value = made(parse(without_logical(schema)), Random(1))
    assert Decoder(topic, MemorySource({1: schema})).single(written(schema, value)) is None


def test_another_schema_than_the_readers_is_left_to_the_columns() -> None:
    topic, record = CASES[0]
    fewer = {**record.schema, "fields": record.schema["fields"][:-1]}
    decoder = Decoder(topic, MemorySource({1: fewer}))
    value = written(fewer, made(parse(fewer), Random(1)))
    assert decoder.single(value) is None
    assert decoder.single(b"\0\0\0\0\2" + value[5:]) is None
    assert decoder.single(None) is None
