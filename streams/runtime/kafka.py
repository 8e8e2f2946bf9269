"""Kafka clients with the one set of settings that everybody uses.

Every producer partitions by `murmur2_random`, as Java's and Faust's clients do; librdkafka's
default (CRC32) sends five keys of six to another partition. `partition_of` is the same function
for readers that must find a key's partition, and `check_partitioner` proves at start-up that
both agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription
from confluent_kafka.error import KafkaError

from streams.runtime.settings import Kafka

FETCH_BACKOFF_MS = 5
"""librdkafka's default (1,000) stalls a partition for a second whenever its queue is full."""


SESSION_TIMEOUT_MS = 10_000
"""How long the partitions of a worker that was killed wait for another (default: 45 s). A worker
that is paused for longer finds its writes refused by the fence.
"""


def client_config(kafka: Kafka, **more: Any) -> dict[str, Any]:
    """librdkafka settings for any client: address, pass-through settings, then `more`."""
    return {"bootstrap.servers": kafka.bootstrap_servers, **kafka.config, **more}


def producer_config(kafka: Kafka, **more: Any) -> dict[str, Any]:
    """Settings of a producer that loses nothing: idempotent, all replicas, Java's partitioner."""
    return client_config(
        kafka,
        **{
            "acks": "all",
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "compression.type": "lz4",
            "linger.ms": 5,
            **more,
        },
    )


def producer(kafka: Kafka, **more: Any) -> Producer:
    """A producer with `producer_config`."""
    return Producer(producer_config(kafka, **more))


def consumer(kafka: Kafka, group: str, **more: Any) -> Consumer:
    """A consumer that commits only what it is told to and whose fetches never stall."""
    return Consumer(
        client_config(
            kafka,
            **{
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": kafka.config.get("session.timeout.ms", SESSION_TIMEOUT_MS),
                "fetch.queue.backoff.ms": FETCH_BACKOFF_MS,
                "queued.min.messages": 20_000,
                **more,
            },
        )
    )


def admin(kafka: Kafka) -> AdminClient:
    """An admin client."""
    return AdminClient(client_config(kafka))


def shared_admin(kafka: Kafka) -> AdminClient:
    """The one admin client of this process for these settings: a client is four threads that wake
    up now and then, and a worker of many agents would have one each.
    """
    with _SHARED:
        key = json.dumps([kafka.bootstrap_servers, kafka.config], sort_keys=True)
        if key not in _ADMINS:
            _ADMINS[key] = admin(kafka)
        return _ADMINS[key]


_ADMINS: dict[str, AdminClient] = {}
_SHARED = Lock()


class UnknownTopic(LookupError):
    """The broker does not know the topic; `headrace topics apply` creates it."""


def topic_id(client: AdminClient, topic: str, timeout_s: float = 10.0) -> str:
    """Kafka's id of a topic; a re-created topic has another. Raises `UnknownTopic`, or
    `KafkaException` when the broker does not answer.
    """
    return str(_described(client, topic, timeout_s).topic_id)


def _described(client: AdminClient, topic: str, timeout_s: float) -> TopicDescription:
    future = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s)[topic]
    try:
        return future.result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise UnknownTopic(f"topic {topic} does not exist: headrace topics apply") from error
        raise


@dataclass(frozen=True)
class LogBounds:
    """What the broker says of a partition: the topic's id, its offsets `[start, end)`, and how
    many partitions the topic has.
    """

    topic_id: str
    start: int
    end: int
    partitions: int


def log_bounds(
    client: AdminClient, topic: str, partition: int, timeout_s: float = 10.0
) -> LogBounds:
    """Ask the broker. Raises `UnknownTopic` or `KafkaException`."""
    known = _described(client, topic, timeout_s)
    place = TopicPartition(topic, partition)
    start, end = (
        client.list_offsets({place: spec}, request_timeout=timeout_s)[place]
        .result(timeout_s)
        .offset
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
    )
    return LogBounds(str(known.topic_id), start, end, len(known.partitions))


def murmur2(key: bytes) -> int:
    """Java Kafka's 32-bit murmur2 (seed 0x9747b28c), as an unsigned integer."""
    mask, factor = 0xFFFFFFFF, 0x5BD1E995
    whole = len(key) & ~3
    h = 0x9747B28C ^ len(key)
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * factor & mask
        k = (k ^ k >> 24) * factor & mask
        h = (h * factor & mask) ^ k
    tail = key[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * factor & mask
    h = (h ^ h >> 13) * factor & mask
    return h ^ h >> 15


def partition_of(key: str, partitions: int) -> int:
    """The partition of a record key, as every producer here chooses it."""
    return (murmur2(key.encode()) & 0x7FFFFFFF) % partitions


def check_partitioner(config: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless a producer configuration partitions as readers expect."""
    chosen = config.get("partitioner")
    if chosen != "murmur2_random":
        raise ValueError(
            f"partitioner={chosen!r}: keys would land on other partitions than readers look in; "
            "set partitioner=murmur2_random"
        )
