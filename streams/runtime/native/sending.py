"""Batches of records to one topic: at once through the native library, one by one without it.

The producer is confluent-kafka's in both cases, with its settings and its idempotence, and what it
could not deliver is told in both cases the same way. confluent-kafka itself sends batches, too, but
without headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaError, KafkaException, Producer

from streams.runtime import kafka
from streams.runtime.native.available import Choice, library, wanted
from streams.runtime.native.feed import PLUGINS
from streams.runtime.settings import Kafka

Record = tuple[bytes, bytes, list[tuple[str, bytes]]]
"""Key, value and headers."""
FULL = KafkaError._QUEUE_FULL


class Sender(Protocol):
    """Sends to one topic. One thread at a time.

    Raises `RuntimeError` once the producer is closed.
    """

    producer: Producer

    def send(
        self, partition: int, records: Sequence[Record], begin: int = 0
    ) -> tuple[int, KafkaError | None]:
        """Hand over the records from index `begin` on, in order. How far it came, and the error
        that stopped it: `FULL` if the rest may be tried again after a while, else it is lost.
        """
        ...

    def lost(self) -> KafkaError | None:
        """What the first record since the last call that was not delivered has died of; known
        after `producer.poll`.
        """
        ...


def opened(settings: Kafka, topic: str, choice: Choice = "auto", **more: Any) -> Sender:
    """A producer as `kafka.producer` makes it, and what sends to a topic through it.

    Raises `ReaderMissing`.
    """
    if not wanted(choice):
        return MessageSender(kafka.producer(settings, **more), topic)
    plugins = [settings.config.get(PLUGINS, ""), library().__file__]
    named = {PLUGINS: ";".join(filter(None, plugins)), **more}
    return BatchSender(kafka.producer(settings, **named), topic)


class MessageSender:
    """Through confluent-kafka, record by record."""

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self._topic = topic
        self._lost: KafkaError | None = None

    def send(
        self, partition: int, records: Sequence[Record], begin: int = 0
    ) -> tuple[int, KafkaError | None]:
        produce, topic, report = self.producer.produce, self._topic, self._report
        for at in range(begin, len(records)):
            key, value, headers = records[at]
            try:
                produce(topic, value, key, partition, report, headers=headers)
            except BufferError:
                return at, KafkaError(FULL)
            except KafkaException as error:
                return at, error.args[0]
        return len(records), None

    def lost(self) -> KafkaError | None:
        lost, self._lost = self._lost, None
        return lost

    def _report(self, error: KafkaError | None, _: object) -> None:
        if error is not None and self._lost is None:
            self._lost = error


class BatchSender:
    """Through the native library.

    `producer` must have been made by this thread just before, with the library as a plugin;
    `opened` does both.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self.producer = producer
        self._sender: Any = library().Sender(topic)

    def send(
        self, partition: int, records: Sequence[Record], begin: int = 0
    ) -> tuple[int, KafkaError | None]:
        count, code = self._sender.send(partition, records, begin)
        return begin + count, KafkaError(code) if code else None

    def lost(self) -> KafkaError | None:
        code = self._sender.lost()
        return None if code is None else KafkaError(code)
