"""Against a real broker and a real registry."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pytest
from confluent_kafka import OFFSET_BEGINNING, TopicPartition

from connectors.encode import Encoder
from connectors.files import Pace, open_bulk, produce_file, produce_frame
from connectors.mapping import Mapper
from connectors.producer import LogProducer, RecordMetadata, Undelivered
from schemas.ads import events
from schemas.registry import schema_ids
from streams.runtime.kafka import consumer, partition_of
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

pytestmark = pytest.mark.stack


def read_all(settings: Settings, topic: Topic, count: int) -> list[tuple[RecordMetadata, Any]]:
    """All records, decoded by the writer's schema; fails when there are more or fewer."""
    reader = consumer(settings.kafka, "test-connectors")
    reader.assign(
        [TopicPartition(topic.name, p, OFFSET_BEGINNING) for p in range(topic.partitions)]
    )
    schema = fastavro.parse_schema(events.AD_CLICKED.schema)
    found: list[tuple[RecordMetadata, Any]] = []
    try:
        while len(found) <= count:
            messages = reader.consume(count + 1, timeout=2.0)
            if not messages:
                break
            for message in messages:
                assert message.error() is None
                place = RecordMetadata(message.topic(), message.partition(), message.offset())
                row = fastavro.schemaless_reader(io.BytesIO(message.value()[5:]), schema)
                assert message.key() == row["user_id"].encode()
                found.append((place, row))
    finally:
        reader.close()
    assert len(found) == count
    return found


def click(number: int) -> dict[str, Any]:
    return {
        "click_id": f"c{number}",
        "user_id": f"u{number % 50}",
        "campaign_id": "c",
        "ad_id": "a",
        "event_time": 1_767_225_600_000 + number,
    }


async def test_every_row_is_where_the_producer_says(settings: Settings, topic: Topic) -> None:
    ids = schema_ids(topic, settings.registry)
    rows = [("AdClicked", click(number)) for number in range(3_000)]
    async with LogProducer.open(settings.kafka, {topic.name: Encoder(topic, ids)}) as producer:
        calls = [producer.send_many(topic.name, rows[at : at + 100]) for at in range(0, 3_000, 100)]
        places = [place for sent in await asyncio.gather(*calls) for place in sent]
        assert producer.in_flight == 0

    stored = dict(read_all(settings, topic, 3_000))
    for (_, row), place in zip(rows, places, strict=True):
        assert stored[place]["click_id"] == row["click_id"]
        assert place.partition == partition_of(row["user_id"], topic.partitions)


async def test_a_topic_that_is_not_there_is_undelivered(settings: Settings, topic: Topic) -> None:
    ids = schema_ids(topic, settings.registry)
    absent = replace(topic, name=f"{topic.name}-absent")
    async with LogProducer.open(settings.kafka, {absent.name: Encoder(absent, ids)}) as producer:
        with pytest.raises(Undelivered):
            await producer.send(absent.name, "AdClicked", click(1))


def test_a_frame_is_sent_in_order(settings: Settings, topic: Topic) -> None:
    frame = pl.DataFrame([click(number) for number in range(25_000)]).with_columns(
        pl.from_epoch("event_time", "ms").dt.replace_time_zone("UTC"),
        country=pl.lit("NL"),
    )
    seen: list[int] = []

    sent = produce_frame(frame, topic, events.AD_CLICKED, settings, seen.append)

    assert sent == sum(seen) == 25_000
    by_user: dict[str, list[int]] = {}
    for _, row in sorted(read_all(settings, topic, 25_000), key=lambda found: found[0]):
        by_user.setdefault(row["user_id"], []).append(int(row["click_id"][1:]))
    assert all(numbers == sorted(numbers) for numbers in by_user.values())


def test_a_file_is_sent_and_its_bad_rows_are_not(
    settings: Settings, topic: Topic, tmp_path: Path
) -> None:
    lines = [json.dumps(click(number)) for number in range(1_000)]
    lines[10], lines[20] = "{", json.dumps({**click(20), "event_time": "yesterday"})
    file = tmp_path / "clicks.jsonl"
    file.write_text("\n".join(lines))

    with open_bulk(topic, settings) as bulk:
        report = produce_file(file, Mapper(topic, events.AD_CLICKED), bulk, Pace(None, 0))

    assert (report.sent, report.rejected) == (998, 2)
    ids = {row["click_id"] for _, row in read_all(settings, topic, 998)}
    assert ids == {f"c{number}" for number in range(1_000)} - {"c10", "c20"}
    rejects = (tmp_path / "clicks.jsonl.rejected.jsonl").read_text()
    rejected = [json.loads(line) for line in rejects.splitlines()]
    assert [row["line"] for row in rejected] == [11, 21]
