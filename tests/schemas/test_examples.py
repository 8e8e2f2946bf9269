"""Every schema has an example, and it goes through Avro and back without a change."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest

from schemas.catalog import SYSTEMS, topics
from schemas.examples import ExampleError, plain, read_example
from schemas.generate.declaration import SchemaFile, declared
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.topic import RecordType, Topic

FILES = [file for system in SYSTEMS for file in declared(system).files]
EXAMPLES = [(file, path) for file in FILES for path in file.examples()]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.name)
def test_every_schema_has_an_example(file: SchemaFile) -> None:
    assert list(file.examples())


def test_every_example_has_a_schema() -> None:
    on_disk = {p for s in SYSTEMS for p in declared(s).folder.glob("examples/*")}
    assert on_disk == {path for _, path in EXAMPLES}


@pytest.mark.parametrize(("file", "path"), EXAMPLES, ids=lambda x: getattr(x, "name", None))
def test_an_example_goes_through_avro_and_back(file: SchemaFile, path: Path) -> None:
    record = read_example(file, path)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, file.schema, record, strict=True)
    body.seek(0)
    schema = plain(file.schema)
    assert fastavro.schemaless_reader(body, schema, schema) == record
    assert body.read() == b""


def _records() -> list[tuple[Topic, RecordType]]:
    return [
        (topic, record)
        for topic in topics().values()
        for record in topic.records
        if record not in CONTROL_RECORDS
    ]


@pytest.mark.parametrize(
    ("topic", "record"), [one for one in _records() if one[0].columnar], ids=lambda x: x.name
)
def test_a_columnar_topic_is_read_by_polars(topic: Topic, record: RecordType) -> None:
    """The pin: polars reads every record of the topic, to exactly the declared dtypes."""
    _read_by_polars(record)


@pytest.mark.parametrize("topic", [t for t in topics().values() if not t.columnar], ids=str)
def test_a_topic_is_read_row_by_row_for_a_reason(topic: Topic) -> None:
    """Else it says `columnar = false` for nothing."""
    read = []
    for record in topic.records:
        with suppress(Exception, pl.exceptions.PanicException):
            _read_by_polars(record)
            read.append(record)
    assert len(read) < len(topic.records)


def _read_by_polars(record: RecordType) -> None:
    file = declared(record.fullname.split(".")[1]).newest(record.name)
    given = [read_example(file, path) for path in file.examples()]
    container = io.BytesIO()
    fastavro.writer(container, _without_defaults(record.schema), given)
    container.seek(0)
    frame = pl.read_avro(container)
    assert tuple(frame.columns) == record.columns
    cast = frame.select(pl.col(name).cast(dtype) for name, dtype in record.dtypes.items())
    assert cast.schema == pl.Schema(record.dtypes)
    back = cast.with_columns(pl.col(pl.Datetime).dt.timestamp("ms"))
    assert back.to_dicts() == given


def _without_defaults(schema: Any) -> Any:
    """Polars 2.1 refuses a container whose fields have defaults ("OutOfSpec"), and a writer's
    schema needs none: they are for readers.
    """
    if isinstance(schema, dict):
        return {k: _without_defaults(v) for k, v in schema.items() if k != "default"}
    return [_without_defaults(v) for v in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path.name)
def test_rows_are_built_from_examples(file: SchemaFile) -> None:
    record = next(r for _, r in _records() if r.fullname == file.fullname)
    example = read_example(file, next(file.examples()))
    row = record.row(**example)  # of an older version, with the defaults of fields it does not have
    assert {name: getattr(row, name) for name in example} == example


GOOD = {"order_id": "o-1", "placed_at": 1, "note": {"string": "x"}}


@pytest.mark.parametrize(
    "wrong",
    [
        {**GOOD, "note": "x"},
        {**GOOD, "note": {"long": 1}},
        {**GOOD, "order_id": 7},
        {**GOOD, "placed_at": "2026-01-01"},
        {**GOOD, "placed_at": 2**63},
        {**GOOD, "more": 1},
        {"order_id": "o-1", "placed_at": 1},
        {},
        [],
        "text",
    ],
)
def test_a_wrong_example_is_refused(shop: Any, make_order: Callable[..., Any], wrong: Any) -> None:
    note = {"name": "note", "type": ["null", "string"], "default": None, "doc": "A note."}
    shop.schema(make_order(note))
    file = declared("shop", shop.root).newest("OrderPlaced")
    assert read_example(file, shop.example(GOOD)) == {**GOOD, "note": "x"}
    with pytest.raises(ExampleError):
        read_example(file, shop.example(wrong))
