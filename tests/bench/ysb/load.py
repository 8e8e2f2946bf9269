"""Puts events on the log: all of a catch-up topic at once, or paced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from confluent_kafka import Producer, TopicPartition
from rich.progress import track

from connectors.columnar import FrameEncoder
from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic
from tests.bench import report
from tests.bench.store import drop_topics
from tests.bench.ysb.events import (
    AD_EVENT,
    CHUNK,
    PARTITIONS,
    Variant,
    frames,
    json_values,
    topic,
)

QUEUED_MAX = 200_000
FLUSH_S = 60.0
_TIMEOUT_S = 10.0

Encode = Callable[[pl.DataFrame], Sequence[bytes]]


class Loader:
    """Sends values round robin: value n of all goes to partition n % 4, in order, none lost."""

    def __init__(self, settings: Settings, to: Topic, linger_ms: int = 50) -> None:
        config = kafka.producer_config(
            settings.kafka,
            **{
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "batch.num.messages": 50_000,
                "queue.buffering.max.messages": 2 * QUEUED_MAX,
                "queue.buffering.max.kbytes": 1_000_000,
                "delivery.report.only.error": True,
            },
        )
        self._client = Producer(config)
        self._topic = to.name
        self._failed: list[str] = []
        self.sent = 0

    def send(self, values: Sequence[bytes]) -> None:
        """Queue values; waits while the queue is full. Raises `RuntimeError` after a failure."""
        for partition in range(PARTITIONS):
            first = (partition - self.sent) % PARTITIONS
            messages = [{"value": value} for value in values[first::PARTITIONS]]
            queued = 0
            while queued < len(messages):
                queued += self._queue(messages[queued : queued + QUEUED_MAX // 4], partition)
        self.sent += len(values)
        self._client.poll(0)

    def _queue(self, messages: list[dict[str, bytes]], partition: int) -> int:
        while len(self._client) > QUEUED_MAX:
            self._client.poll(0.05)
        taken = self._client.produce_batch(
            self._topic, messages, partition=partition, on_delivery=self._note
        )
        if taken < len(messages):
            raise RuntimeError(f"{self._topic}: only {taken} of {len(messages)} were queued")
        return int(taken)

    def flush(self) -> None:
        """Wait until all are on the log. Raises `RuntimeError` when one is not."""
        left = self._client.flush(FLUSH_S)
        if self._failed or left:
            raise RuntimeError(f"{self._topic}: {left} values left, {self._failed[:1]}")

    def _note(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failed.append(str(error))


def ensure(settings: Settings, variant: Variant, records: int) -> Topic:
    """The catch-up topic, filled; filled again unless it is there and whole."""
    wanted = topic(variant, str(records))
    held = _held(settings, wanted)
    if held == records:
        return wanted
    encode = fresh(settings, wanted)
    loader = Loader(settings, wanted)
    chunks = track(
        frames(records),
        f"{wanted.name}",
        total=-(-records // CHUNK),
        console=report.console,
        transient=True,
    )
    for frame in chunks:
        loader.send(encode(frame))
    loader.flush()
    if (held := _held(settings, wanted)) != records:
        raise RuntimeError(f"{wanted.name}: {held} records are there, not {records}")
    return wanted


def fresh(settings: Settings, wanted: Topic) -> Encode:
    """Make the topic anew, empty; returns how its values are made."""
    drop_topics(settings, [wanted])
    apply(settings, [wanted])
    if wanted.encoding == "json":
        return json_values
    encoder = FrameEncoder(Encoder(wanted, schema_ids(wanted, settings.registry)))
    return lambda frame: [value for _, value in encoder.encode(AD_EVENT.name, frame)]


def _held(settings: Settings, of: Topic) -> int:
    there = kafka.admin(settings.kafka).list_topics(timeout=_TIMEOUT_S).topics
    if of.name not in there:
        return 0
    consumer = kafka.consumer(settings.kafka, "bench-look")
    places = [TopicPartition(of.name, partition) for partition in range(of.partitions)]
    held = sum(consumer.get_watermark_offsets(place, timeout=_TIMEOUT_S)[1] for place in places)
    consumer.close()
    return int(held)
