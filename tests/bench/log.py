"""Filling topics: once, whole, and the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable

import polars as pl
from confluent_kafka import TopicPartition

from connectors.bulk import BulkProducer
from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic
from tests.bench.report import counted
from tests.bench.store import drop_topics

_TIMEOUT_S = 10.0


def fill(
    settings: Settings, topic: Topic, records: int, frames: Iterable[tuple[str, pl.DataFrame]]
) -> None:
    """Create the topic with these frames by record name, unless it holds `records` already."""
    held = _held(settings, topic)
    if held == records:
        return
    if held:  # a run before was interrupted
        drop_topics(settings, [topic])
    apply(settings, [topic])
    encoder = Encoder(topic, schema_ids(topic, settings.registry))
    with BulkProducer(settings.kafka, encoder) as producer:
        for record, frame in counted(f"filling {topic.name}", records, frames):
            producer.send(record, frame)
    if producer.sent != records:
        raise ValueError(f"{topic.name}: {producer.sent} records were made, not {records}")


def _held(settings: Settings, topic: Topic) -> int:
    if topic.name not in kafka.admin(settings.kafka).list_topics(timeout=_TIMEOUT_S).topics:
        return 0
    consumer = kafka.consumer(settings.kafka, "bench-look")
    places = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    held = sum(consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)[1] for place in places)
    consumer.close()
    return int(held)
