"""How the lane's reader gets records out of its consumer: message by message, or as columns.

Both wait, take and report alike, and answer runs: the records of one partition, in offset order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Protocol

from confluent_kafka import Consumer, Message

from streams.runtime.lane.errors import passing

CONSUME_ROWS = 500
"""Records per call: small enough that their Python objects stay in the processor's cache."""

Run = tuple[int, Sequence[Message]]
"""A partition and some of its records in offset order, at least one."""


class Feed(Protocol):
    """Reads a consumer's partitions. Only the thread that uses the consumer may use it.

    `drained` says whether the last read has taken all that was at hand. Both reads raise
    `KafkaException` for an error that the client does not mend by itself.
    """

    drained: bool

    def first(self, wait_s: float) -> list[Run]:
        """Wait for a record or a call-back, then take what is at hand."""
        ...

    def fill(self, wait_s: float) -> list[Run]:
        """Wait until a whole read is at hand or the time is over."""
        ...

    def place(self, partitions: Iterable[int]) -> None:
        """These partitions are about to be assigned."""
        ...

    def leave(self, partitions: Iterable[int]) -> None:
        """These partitions are about to be taken away."""
        ...


class MessageFeed:
    """Through confluent-kafka's messages."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.drained = True

    def first(self, wait_s: float) -> list[Run]:
        first = self._consumer.poll(wait_s)
        # Not `if first`: a tombstone, an empty value and an error are all falsy.
        messages = [] if first is None else [first]
        if messages:
            messages += self._consumer.consume(CONSUME_ROWS - 1, timeout=0)
        return self._runs(messages)

    def fill(self, wait_s: float) -> list[Run]:
        return self._runs(self._consumer.consume(CONSUME_ROWS, timeout=wait_s))

    def place(self, partitions: Iterable[int]) -> None:
        """Nothing to do: the consumer's own queue has them."""

    def leave(self, partitions: Iterable[int]) -> None:
        """Nothing to do."""

    def _runs(self, messages: list[Message]) -> list[Run]:
        self.drained = len(messages) < CONSUME_ROWS
        if any(map(Message.error, messages)):
            messages = [message for message in messages if not passing(message.error())]
        return [(at, list(run)) for at, run in groupby(messages, Message.partition)]
