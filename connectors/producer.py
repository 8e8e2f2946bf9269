"""The log's front door: rows in, delivered positions out, for asyncio.

The event loop itself asks librdkafka for delivery reports, every millisecond while something is in
flight. A thread that waits for them would have to take the interpreter from a busy loop for each
one, and gets it after up to five milliseconds: at a thousand commands a second that was most of the
time they took. What is in flight is bounded: past the bound `Saturated` is raised *before* anything
of the call is queued, so the caller can say "later" instead of growing.

A record is acknowledged only when all in-sync replicas have it. `Undelivered` means that the
outcome is unknown (it may have been written): send it again with the same event id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from confluent_kafka import KafkaException, Producer

from connectors.encode import Encoder
from streams.runtime import kafka as kafka_clients
from streams.runtime.settings import Kafka
from streams.runtime.tracing import inject

IN_FLIGHT_MAX = 50_000
DELIVERY_TIMEOUT_MS = 10_000
"""Past this a record that no broker confirmed is reported as `Undelivered`."""
LINGER_MS = 0
"""A caller waits for each event, so any linger would be its latency; what comes while a request is
on its way goes together in the next one.
"""
REQUESTS_IN_FLIGHT = 1
"""With idempotence librdkafka holds a partition's batch back while five of its records are on their
way, and then spins on the processor until they are acknowledged, which a broker on the same
machine feels. With one request at a time it sleeps. A broker takes the requests of a connection one
by one anyway, so what is lost is the way there and back.
"""
QUEUE_WAIT_MS_MAX = 1_000
QUEUE_RETRY_MS = 5
POLL_MS = 1
"""How often reports are asked for while something is in flight."""
IDLE_MS = 100
"""And while nothing is; errors of the client are heard of then."""
CLOSE_TIMEOUT_S = DELIVERY_TIMEOUT_MS / 1_000 + 5


class ProducerError(Exception):
    """Base of what a producer raises for rows that are right.

    ProducerError
    ├── Saturated     too much in flight: try again after `retry_after_s`
    └── Undelivered   not confirmed: it may or may not be in the log
    """


class Saturated(ProducerError):
    """Too much is in flight."""

    def __init__(self, in_flight: int, retry_after_s: int = 1) -> None:
        super().__init__(f"{in_flight} records are in flight")
        self.retry_after_s = retry_after_s


class Undelivered(ProducerError):
    """At least one record of the call was not confirmed."""


@dataclass(frozen=True, slots=True, order=True)
class RecordMetadata:
    """Where a record is in the log."""

    topic: str
    partition: int
    offset: int


Headers = Sequence[tuple[str, bytes]]
"""Record headers, in order."""


class KafkaClient(Protocol):
    """The part of `confluent_kafka.Producer` that is used here."""

    def produce(
        self, topic: str, *, key: bytes, value: bytes, headers: Any, on_delivery: Any
    ) -> None: ...
    def poll(self, timeout: float) -> int: ...
    def purge(self) -> None: ...


class EventProducer(Protocol):
    """What the API needs of a producer; tests pass one that keeps rows in memory."""

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Headers = ()
    ) -> RecordMetadata: ...
    async def send_many(
        self, topic: str, rows: Sequence[tuple[str, Any]], headers: Headers = ()
    ) -> list[RecordMetadata]: ...


class _Delivery:
    """The delivery reports of one call."""

    def __init__(self, count: int, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[list[RecordMetadata]] = loop.create_future()
        self._slots: list[RecordMetadata | None] = [None] * count
        self._open = count
        self._error: str | None = None

    def report(self, slot: int, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._error or str(error)
        else:
            self._slots[slot] = RecordMetadata(
                message.topic(), message.partition(), message.offset()
            )
        self._less(1)

    def abandon(self, slots: int, reason: str) -> None:
        """Give up on the last `slots` records, which were never queued."""
        self._error = self._error or reason
        self._less(slots)

    def _less(self, slots: int) -> None:
        self._open -= slots
        if self._open or self.future.done():  # done: the caller went away
            return
        if self._error is not None:
            self.future.set_exception(Undelivered(self._error))
        else:
            self.future.set_result([slot for slot in self._slots if slot is not None])


class LogProducer:
    """Sends rows to the topics it has encoders for. Use as an async context manager, in one event
    loop.

    About 70,000 events/s through `send_many` of 1,000, in one process.
    """

    def __init__(
        self,
        client: KafkaClient,
        encoders: Mapping[str, Encoder],
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._client = client
        self._encoders = dict(encoders)
        self._in_flight_max = in_flight_max
        self._in_flight = 0
        self._next: asyncio.TimerHandle | None = None
        self._resting = False
        self._closed = False

    @classmethod
    def open(cls, kafka: Kafka, encoders: Mapping[str, Encoder]) -> LogProducer:
        """A producer on a real cluster. Connects lazily, so it opens while brokers are down."""
        config = kafka_clients.producer_config(
            kafka,
            **{
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "linger.ms": LINGER_MS,
                "max.in.flight.requests.per.connection": REQUESTS_IN_FLIGHT,
                "socket.nagle.disable": True,
                "queue.buffering.max.messages": 2 * IN_FLIGHT_MAX,
            },
        )
        kafka_clients.check_partitioner(config)
        return cls(Producer(config), encoders)

    @property
    def in_flight(self) -> int:
        """Records handed over and not reported yet."""
        return self._in_flight

    async def __aenter__(self) -> Self:
        self._serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Headers = ()
    ) -> RecordMetadata:
        """Append one row; returns when it is durable. Errors as in `send_many`."""
        (metadata,) = await self.send_many(topic, [(record_name, row)], headers)
        return metadata

    async def send_many(
        self, topic: str, rows: Sequence[tuple[str, Any]], headers: Headers = ()
    ) -> list[RecordMetadata]:
        """Append rows `(record name, row)`, each with these headers; returns their places, in
        order, when all are durable.

        All rows are encoded before the first is queued: `EncodeError` means that none was sent.
        Raises `Saturated` (none was sent) and `Undelivered` (any may have been).
        """
        if self._closed:
            raise RuntimeError("the producer is closed")
        encoder = self._encoders[topic]
        encoded = [encoder.encode(name, row) for name, row in rows]
        if not encoded:
            return []
        self._reserve(len(encoded))
        delivery = _Delivery(len(encoded), asyncio.get_running_loop())
        headers = inject(headers)
        queued = 0
        try:
            for key, value in encoded:
                await self._queue(
                    topic, key, value, headers=headers, delivery=delivery, slot=queued
                )
                queued += 1
        except BaseException as error:
            # Whatever happened (queue full, cancelled): only what was queued gets a report.
            self._release(len(encoded) - queued)
            delivery.abandon(len(encoded) - queued, f"not queued: {error}")
            if queued == 0 or not isinstance(error, BufferError | KafkaException):
                delivery.future.cancel()
                if isinstance(error, KafkaException):
                    raise Undelivered(str(error)) from error
                raise
        return await delivery.future

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Wait for what is in flight and stop. Raises `Undelivered` when not all was confirmed."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        while self._in_flight and loop.time() < until_s:  # noqa: ASYNC110 - `_serve` hears of it
            await asyncio.sleep(POLL_MS / 1_000)
        if self._next is not None:
            self._next.cancel()
        if left := self._in_flight:
            self._client.purge()
            self._client.poll(0)  # reports of purged records
            raise Undelivered(f"{left} records were not confirmed within {timeout_s:g} s")

    def _reserve(self, count: int) -> None:
        if self._in_flight + count > self._in_flight_max:
            raise Saturated(self._in_flight)
        self._in_flight += count
        if self._resting and self._next is not None:
            self._next.cancel()
            self._wait(POLL_MS)

    def _release(self, count: int) -> None:
        self._in_flight -= count

    async def _queue(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        *,
        headers: Headers,
        delivery: _Delivery,
        slot: int,
    ) -> None:
        def report(error: Any, message: Any) -> None:
            self._release(1)
            delivery.report(slot, error, message)

        for _attempt in range(QUEUE_WAIT_MS_MAX // QUEUE_RETRY_MS):
            try:
                self._client.produce(
                    topic,
                    key=key,
                    value=value,
                    headers=list(headers) or None,
                    on_delivery=report,
                )
            except BufferError:  # full: reports make room
                await asyncio.sleep(QUEUE_RETRY_MS / 1_000)
            else:
                return
        if slot == 0:
            raise Saturated(self._in_flight)
        raise BufferError("the producer's queue stayed full")

    def _serve(self) -> None:
        """Hear what was delivered, again and again."""
        try:
            self._client.poll(0)
        finally:
            self._wait(POLL_MS if self._in_flight else IDLE_MS)

    def _wait(self, ms: int) -> None:
        self._resting = ms == IDLE_MS
        self._next = asyncio.get_running_loop().call_later(ms / 1_000, self._serve)
