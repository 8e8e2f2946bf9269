"""The lane's feed through the column reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError

from streams.runtime import kafka
from streams.runtime.lane.errors import passing
from streams.runtime.lane.feed import CONSUME_ROWS, Feed, MessageFeed, Run
from streams.runtime.native.available import Choice, library, wanted
from streams.runtime.native.columns import Columns
from streams.runtime.settings import Kafka

READ_ROWS = 16_384
"""Records per call at most: enough that the calls themselves cost nothing."""
PLUGINS = "plugin.library.paths"


class ColumnFeed:
    """Reads one topic's partitions as columns.

    `consumer` must have been made by this thread just before, with this library as a plugin;
    `opened` does both. Records come from the partitions' own queues, so that
    `Consumer.poll` serves call-backs and errors only. About `rows_max` records are read at once.
    """

    def __init__(self, consumer: Consumer, topic: str, rows_max: int = READ_ROWS) -> None:
        self._consumer = consumer
        self._rows_max = rows_max
        self._topic = topic
        self._feed: Any = library().Feed(topic)
        self.drained = True

    def first(self, wait_s: float) -> list[Run]:
        return self._read(wait_s, 1)

    def fill(self, wait_s: float) -> list[Run]:
        return self._read(wait_s, CONSUME_ROWS)

    def place(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._feed.place(partition)

    def leave(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._feed.leave(partition)

    def _read(self, wait_s: float, least: int) -> list[Run]:
        while (message := self._consumer.poll(0)) is not None:
            if message.error() is None:
                raise RuntimeError(f"a record of {self._topic} came past the column reader")
            passing(message.error())
        runs, failures = self._feed.read(int(wait_s * 1_000) or 1, least, self._rows_max)
        for _, code, text in failures:
            passing(KafkaError(code, text))
        self.drained = sum(len(records) for _, records in runs) < CONSUME_ROWS
        return [(at, Columns(self._topic, at, records)) for at, records in runs if len(records)]


def opened(
    settings: Kafka,
    group: str,
    topic: str,
    choice: Choice = "auto",
    rows_max: int = READ_ROWS,
    **more: Any,
) -> tuple[Consumer, Feed]:
    """A consumer as `kafka.consumer` makes it, and what reads its records, about `rows_max` at once
    as columns.

    Raises `ReaderMissing`.
    """
    if not wanted(choice):
        consumer = kafka.consumer(settings, group, **more)
        return consumer, MessageFeed(consumer)
    plugins = [settings.config.get(PLUGINS, ""), library().__file__]
    named = {PLUGINS: ";".join(filter(None, plugins)), **more}
    consumer = kafka.consumer(settings, group, **named)
    return consumer, ColumnFeed(consumer, topic, rows_max)
