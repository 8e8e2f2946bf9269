"""Measure lag: positions from workers and Kafka, ends and waiting records from the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from confluent_kafka.error import KafkaError

from infra.lag import Lag, Place, Source
from infra.prometheus.scrape import Frame
from streams.runtime.kafka import admin, consumer
from streams.runtime.settings import Kafka

TIMEOUT_S = 10.0
READER = "headrace-lag"
"""Client of the reads of waiting records; it never commits."""

_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT)
"""A topic that is not there; the second when none of those asked for is."""

Positions = Mapping[Place, tuple[Source, int]]
"""Where each agent is on each partition, and how that is known."""


def measure(
    kafka: Kafka,
    stored: Positions,
    *,
    clock: Callable[[], float] = time.time,
    timeout_s: float = 3.0,
) -> list[Lag]:
    """The lag at every place, by agent, topic and partition. Raises `KafkaException`.

    The log's end is asked *after* the positions were, so that lag is never understated. Topics
    that are gone are left out. `timeout_s` bounds the reading of waiting records.
    """
    client = admin(kafka)
    keys = sorted({(place.topic, place.partition) for place in stored})
    ends = _offsets(client, keys, OffsetSpec.latest())
    starts = _offsets(client, keys, OffsetSpec.earliest())
    here = {place: at for place, at in stored.items() if (place.topic, place.partition) in ends}
    waiting = {
        (place.topic, place.partition, at)
        for place, (_, at) in here.items()
        if at < ends[place.topic, place.partition]
    }
    appended_ms = _append_times(kafka, waiting, timeout_s) if waiting else {}
    lags = []
    for place, (source, at) in sorted(here.items()):
        key = (place.topic, place.partition)
        seconds: float | None = 0.0
        if at < ends[key]:
            then_ms = appended_ms.get((*key, at))
            seconds = None if then_ms is None else max(0.0, clock() - then_ms / 1000)
        lags.append(Lag(place, source, at, starts.get(key, 0), ends[key], seconds))
    return lags


def shown_by_workers(frame: Frame) -> dict[Place, tuple[Source, int]]:
    """Positions the running workers show. Of two processes, the one further on is right."""
    found: dict[Place, tuple[Source, int]] = {}
    for labels, value in frame.of("kafka_consumergroup_current_offset"):
        place = Place(labels["consumergroup"], labels["topic"], int(labels["partition"]))
        was = found.get(place, (Source.WORKER, 0))[1]
        found[place] = (Source.WORKER, max(was, int(value)))
    return found


def committed(kafka: Kafka, agents: Iterable[str]) -> dict[Place, tuple[Source, int]]:
    """Offsets that these agents' groups committed in Kafka. Raises `KafkaException`."""
    client = admin(kafka)
    found: dict[Place, tuple[Source, int]] = {}
    for agent in agents:
        asked = ConsumerGroupTopicPartitions(agent)
        answer = client.list_consumer_group_offsets([asked], request_timeout=TIMEOUT_S)[agent]
        try:
            partitions = answer.result(TIMEOUT_S).topic_partitions
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                continue
            raise
        for part in partitions:
            if part.error is None and part.offset >= 0:
                place = Place(agent, part.topic, part.partition)
                found[place] = (Source.COMMITTED, part.offset)
    return found


def _offsets(
    client: AdminClient, keys: list[tuple[str, int]], spec: OffsetSpec
) -> dict[tuple[str, int], int]:
    if not keys:
        return {}
    asked = {TopicPartition(topic, partition): spec for topic, partition in keys}
    found: dict[tuple[str, int], int] = {}
    for part, answer in client.list_offsets(asked, request_timeout=TIMEOUT_S).items():
        try:
            found[part.topic, part.partition] = answer.result(TIMEOUT_S).offset
        except KafkaException as error:
            if error.args[0].code() not in _GONE:
                raise
    return found


def _append_times(
    kafka: Kafka, waiting: set[tuple[str, int, int]], timeout_s: float
) -> dict[tuple[str, int, int], int]:
    """When the first record at or after each offset was appended (or created, by the topic's
    setting), in Unix milliseconds; without those that did not come in time.

    One round for each different offset on a partition: usually one round for everything.
    """
    left = sorted(waiting)
    found: dict[tuple[str, int, int], int] = {}
    deadline = time.monotonic() + timeout_s
    reader = consumer(kafka, READER, **{"auto.offset.reset": "earliest", "queued.min.messages": 1})
    try:
        while left and time.monotonic() < deadline:
            now = {(topic, partition): at for topic, partition, at in reversed(left)}
            found.update(_first_of_each(reader, now, deadline))
            left = [place for place in left if now[place[:2]] != place[2]]
    finally:
        reader.close()
    return found


def _first_of_each(
    reader: Consumer, offsets: Mapping[tuple[str, int], int], deadline: float
) -> dict[tuple[str, int, int], int]:
    assigned = [TopicPartition(*key, at) for key, at in offsets.items()]
    reader.assign(assigned)
    reader.resume(assigned)  # a partition paused in an earlier round would stay so
    found: dict[tuple[str, int, int], int] = {}
    while len(found) < len(offsets) and time.monotonic() < deadline:
        message = reader.poll(0.1)
        if message is None or message.error():
            continue
        key = (message.topic(), message.partition())
        if (*key, offsets[key]) not in found:
            found[*key, offsets[key]] = message.timestamp()[1]
            reader.pause([TopicPartition(*key)])
    return found
