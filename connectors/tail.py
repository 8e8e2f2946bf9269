"""Follows a decider's event topic as it grows, for a process that passes on what is decided.

It begins where a read model is folded up to, with the reader rule's state there, so what it gives
are exactly the events that every reader counts: nothing of a deposed writer, nothing twice. One
thread and one consumer, however many listen; the log is not asked to remember anything.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from confluent_kafka import Message, TopicPartition

from streams.runtime import kafka
from streams.runtime.avro import SchemaSource
from streams.runtime.decider.codec import Codec, Unreadable, with_control_records
from streams.runtime.decider.filter import Verdict, claimed, judge
from streams.runtime.decider.records import OwnershipClaimed
from streams.runtime.decider.wire import decision_of, is_timer
from streams.runtime.lane.feed import MessageFeed
from streams.runtime.position import FilterState, Position
from streams.runtime.settings import Kafka
from streams.runtime.topic import Topic

POLL_S = 0.1

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Decided:
    """Accepted events of one partition, in order, and the first offset behind them."""

    partition: int
    rows: Sequence[tuple[int, Any]]
    """Offset and typed row of each."""
    next_offset: int


class Admitted:
    """The reader rule (A2) over one partition, record by record."""

    def __init__(self, codec: Codec, partition: int, position: Position | None) -> None:
        self._codec = codec
        self._partition = partition
        self.state = (position and position.filter_next) or FilterState()
        self.next_offset = position.next_offset if position else 0

    def take(self, messages: Sequence[Message]) -> Decided:
        """What counts of these records, which follow on those before. Raises `BrokenChain`."""
        decoded = self._codec.decode([one.value() for one in messages])
        rows = []
        for message, found in zip(messages, decoded, strict=True):
            offset = _offset(message)
            if not isinstance(found, Unreadable) and isinstance(found[1], OwnershipClaimed):
                self.state = claimed(self.state, offset, found[1].nonce)
                continue
            headers: Any = message.headers()
            self.state, verdict = judge(self.state, decision_of(headers), timer=is_timer(headers))
            if verdict is Verdict.ACCEPTED and not isinstance(found, Unreadable):
                rows.append((offset, found[1]))
        self.next_offset = _offset(messages[-1]) + 1
        return Decided(self._partition, rows, self.next_offset)


class Tail:
    """Reads all partitions of `topic` from `positions` on (none: from its start), until stopped.

    `hand` and `failed` are called in the event loop that `start` was called in. A tail that has
    failed gives nothing more; who used it begins anew from the positions there are then.
    """

    def __init__(
        self,
        settings: Kafka,
        topic: Topic,
        schemas: SchemaSource,
        schema_ids: Mapping[str, int],
        *,
        hand: Callable[[Decided], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._topic = topic
        self._codec = Codec(with_control_records(topic), schemas, schema_ids)
        self._hand, self._failed = hand, failed
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, positions: Mapping[int, Position]) -> dict[int, int]:
        """Begin; returns the first offset of each partition that will be handed over."""
        partitions = {
            at: Admitted(self._codec, at, positions.get(at)) for at in range(self._topic.partitions)
        }
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._run,
            args=(partitions, loop),
            name=f"tail-{self._topic.name}",
            daemon=True,
        )
        self._thread.start()
        return {at: one.next_offset for at, one in partitions.items()}

    async def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)

    def _run(self, partitions: Mapping[int, Admitted], loop: asyncio.AbstractEventLoop) -> None:
        consumer = kafka.consumer(self._settings, f"tail-{uuid.uuid4().hex}")
        try:
            consumer.assign(
                [
                    TopicPartition(self._topic.name, at, one.next_offset)
                    for at, one in partitions.items()
                ]
            )
            feed = MessageFeed(consumer)
            while not self._stopping.is_set():
                for at, run in feed.first(POLL_S):
                    loop.call_soon_threadsafe(self._hand, partitions[at].take(run))
        except Exception as error:  # whatever it is, who listens has to begin anew
            log.warning("a tail ends", topic=self._topic.name, error=str(error))
            if not self._stopping.is_set():
                loop.call_soon_threadsafe(self._failed, error)
        finally:
            consumer.close()


def _offset(message: Message) -> int:
    offset: int | None = message.offset()
    assert offset is not None
    return offset
