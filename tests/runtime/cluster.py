"""librdkafka's own mock cluster: real fetches, groups and seeks, and no server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from streams.runtime.native import available
from streams.runtime.settings import Kafka

BUILT = pytest.mark.skipif(not available(), reason="the column reader is not built")
CHOICES = ["python", pytest.param("native", marks=BUILT)]
TOPIC = "clicks"
PARTITIONS = 4
WAIT_S = 30.0


def until(happens: Callable[[], Any]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class Cluster:
    """One mock broker with a topic of four partitions."""

    def __init__(self) -> None:
        self._producer = Producer(
            {"test.mock.num.brokers": 1, "message.max.bytes": 20_000_000, "log_level": 0}
        )
        (broker,) = self._producer.list_topics(timeout=10).brokers.values()
        self.kafka = Kafka(
            bootstrap_servers=f"{broker.host}:{broker.port}",
            config={"session.timeout.ms": "6000", "log_level": "0"},
        )

    def create(self) -> None:
        """Make the topic, with nothing in it."""
        self._producer.list_topics(TOPIC, timeout=10)

    def put(self, partition: int, *values: bytes | None, **more: Any) -> None:
        for value in values:
            self._producer.produce(TOPIC, value, partition=partition, **more)
        assert self._producer.flush(WAIT_S) == 0


def numbered(first: int, stop: int) -> list[bytes]:
    return [str(n).encode() for n in range(first, stop)]
