"""All letters of a dead letter topic, up to where it ended when the reading began."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.error import KafkaError

from infra.dlq.letters import Letter
from streams.runtime import kafka
from streams.runtime.settings import Kafka

READER = "headrace-dlq"
"""Client of readings that commit nothing."""
CONSUME_ROWS = 500
WAIT_S = 0.05
"""librdkafka waits for so many rows or so long, whichever comes first."""
SILENCE_S = 15.0


class Unreadable(Exception):
    """Kafka stopped answering before the end of the topic."""


def bounds(settings: Kafka, topic: str) -> dict[int, tuple[int, int]]:
    """Partition → first offset and end. Raises `UnknownTopic` and `KafkaException`."""
    client = kafka.admin(settings)
    kafka.topic_id(client, topic)
    partitions = client.list_topics(topic, timeout=10).topics[topic].partitions
    found = {p: kafka.log_bounds(client, topic, p) for p in sorted(partitions)}
    return {p: (bound.start, bound.end) for p, bound in found.items()}


def letters(
    settings: Kafka, topic: str, spans: Mapping[int, tuple[int, int]]
) -> Generator[Letter, None, None]:
    """The letters with `first <= offset < end` of each partition, one partition after the other.

    Raises `KafkaException` and `Unreadable`.
    """
    reader = kafka.consumer(settings, READER, **{"enable.partition.eof": True})
    try:
        for partition, (first, end) in spans.items():
            if first >= end:
                continue
            reader.assign([TopicPartition(topic, partition, first)])
            yield from _partition(reader, topic, partition, end)
    finally:
        reader.close()


def _partition(reader: Consumer, topic: str, partition: int, end: int) -> Iterator[Letter]:
    heard = time.monotonic()
    while True:
        messages = reader.consume(CONSUME_ROWS, timeout=WAIT_S)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > SILENCE_S:
            raise Unreadable(f"{topic}/{partition}: nothing came for {SILENCE_S:.0f} s")
        for message in messages:
            if message.error() is not None:
                if message.error().code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(message.error())
            if message.offset() >= end:
                return
            yield Letter.of(message)
            if message.offset() == end - 1:
                return
