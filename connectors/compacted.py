"""A compacted topic in memory, in every process that needs it: rules, a blocklist.

One thread reads the topic from its start and goes on reading; asking is a look at a `Book`. While
the log is away the book stays as it was last read. A record that cannot be read is skipped and
counted: what it is about stays as it was, since nothing is worse than something old.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, Self, TypeVar

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from streams.runtime import kafka
from streams.runtime.avro import Decoder, SchemaSource
from streams.runtime.settings import Kafka
from streams.runtime.topic import Topic

POLL_S = 0.1
RETRY_S = 1.0
CONSUME_ROWS = 500
START_TIMEOUT_S = 10.0

log = structlog.get_logger()


class Book(ABC):
    """What a topic says, and how far it is read. One thread folds, everybody else asks: whoever
    derives from it replaces what it holds and never changes it.
    """

    def __init__(self) -> None:
        self.complete = False
        """Whether everything was read once that was there at the start."""
        self.unreadable = 0
        self._next: dict[tuple[str, int], int] = {}

    @abstractmethod
    def fold(self, record: str, fields: Mapping[str, Any]) -> None:
        """Take in one record, by its full name."""

    def skip(self, reason: str) -> None:
        """Count what cannot be read."""
        self.unreadable += 1
        log.warning("a record cannot be read", book=type(self).__name__, reason=reason)

    def reached(self, topic: str, partition: int, next_offset: int) -> None:
        """Everything before `next_offset` is folded."""
        self._next = {**self._next, (topic, partition): next_offset}

    def next(self, topic: str, partition: int) -> int:
        """The first offset not folded yet."""
        return self._next.get((topic, partition), 0)

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return dict(self._next)


B = TypeVar("B", bound=Book)


class Feed(Generic[B]):
    """Keeps a `Book` as new as the log. An async context manager: entering waits, bounded, until
    all that was there is read, and goes on without while the log is away (`Book.complete`).
    """

    def __init__(self, topic: Topic, settings: Kafka, schemas: SchemaSource, book: B) -> None:
        self.book = book
        self._topic = topic
        self._settings = settings
        self._decoder = Decoder(topic, schemas)
        self._stopping = threading.Event()
        self._caught_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name=topic.name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        if not await asyncio.to_thread(self._caught_up.wait, START_TIMEOUT_S):
            log.warning("a topic is not read yet", topic=self._topic.name)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except Exception as error:  # whatever it is, what was read last stays in force
                log.warning(
                    "a topic is not read",
                    topic=self._topic.name,
                    error=str(error),
                    retry_s=RETRY_S,
                )
                self._stopping.wait(RETRY_S)

    def _follow(self) -> None:
        topic = self._topic
        more = {"enable.partition.eof": True}
        consumer = kafka.consumer(self._settings, f"{topic.name}-{uuid.uuid4().hex}", **more)
        try:
            places = [
                TopicPartition(topic.name, partition, OFFSET_BEGINNING)
                for partition in range(topic.partitions)
            ]
            ends = {at.partition: _end(consumer, at) for at in places}
            consumer.assign(places)
            while not self._stopping.is_set():
                if all(self.book.next(topic.name, at) >= end for at, end in ends.items()):
                    self.book.complete = True
                    self._caught_up.set()
                self._take(consumer.consume(CONSUME_ROWS, timeout=POLL_S))
        finally:
            consumer.close()

    def _take(self, messages: list[Message]) -> None:
        records = [message for message in messages if not _ends_here(message)]
        decoded = self._decoder.decode([message.value() for message in records])
        rows = [
            (row["_row"], name, row)
            for name, frame in decoded.frames.items()
            for row in frame.to_dicts()
        ]
        for _, name, fields in sorted(rows, key=lambda row: row[0]):
            self.book.fold(name, fields)
        for dead in decoded.dead:
            self.book.skip(dead.reason)
        for message in messages:
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            next_offset = offset if message.error() else offset + 1
            self.book.reached(self._topic.name, partition, next_offset)


def _ends_here(message: Message) -> bool:
    """Whether it is no record but word that the log ends at this offset. The last offsets may hold
    nothing (compaction, a transaction's marker), so records alone do not tell. Raises what else it
    may be.
    """
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return error is not None


def _end(consumer: Consumer, at: TopicPartition) -> int:
    """Where the log ends; 0 where it holds nothing."""
    low, high = consumer.get_watermark_offsets(at, timeout=START_TIMEOUT_S)
    return int(high) if high > low else 0
