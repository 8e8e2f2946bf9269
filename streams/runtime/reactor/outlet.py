"""What a reactor writes to the log: sent once more and again until its delivery is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

POLL_S = 0.1
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 5.0
FULL_S = 0.01
CLOSE_S = 5.0

_HOPELESS = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.INVALID_RECORD,
)

log = structlog.get_logger()


class Unsendable(Exception):
    """Kafka refuses this record, and will again."""


@dataclass(frozen=True)
class Outgoing:
    """One record to write. `partition` None: by the key."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None = None


class Outlet(Protocol):
    """Where a reactor writes; the tests' twin collects."""

    async def send(self, record: Outgoing) -> None:
        """Return when the record is on the log, perhaps twice. Waits while Kafka is down. Raises
        `Unsendable`.
        """
        ...


class KafkaOutlet:
    """An idempotent producer and the thread that polls it. A producer that broke is replaced."""

    def __init__(self, connect: Callable[[], Producer]) -> None:
        self._connect = connect
        self._producer = connect()
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="outlet-poll", daemon=True)
        self._poller.start()

    async def send(self, record: Outgoing) -> None:
        wait_s = RETRY_S_FIRST
        while True:
            producer = self._producer
            try:
                await self._once(producer, record)
            except KafkaException as failed:
                error = failed.args[0]
                if error.code() in _HOPELESS:
                    raise Unsendable(f"{record.topic}: {error.str()}") from failed
                log.warning("not delivered", topic=record.topic, error=error.str())
                if error.fatal() and producer is self._producer:
                    self._producer = self._connect()
            else:
                return
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RETRY_S_MAX)

    async def _once(self, producer: Producer, record: Outgoing) -> None:
        delivered: asyncio.Future[None] = self._loop.create_future()

        def report(error: KafkaError | None, _: Any) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_resolve, delivered, error)

        where = {} if record.partition is None else {"partition": record.partition}
        while True:
            try:
                producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    headers=list(record.headers),
                    on_delivery=report,
                    **where,
                )
            except BufferError:
                await asyncio.sleep(FULL_S)
            else:
                break
        await delivered

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(POLL_S)

    def close(self) -> None:
        """Stop; what is not delivered by then is dropped. Blocks: not on the loop's thread."""
        self._producer.flush(CLOSE_S)
        self._stopping.set()
        self._poller.join()


def _resolve(delivered: asyncio.Future[None], error: KafkaError | None) -> None:
    if delivered.done():  # whoever waited is gone
        return
    if error is None:
        delivered.set_result(None)
    else:
        delivered.set_exception(KafkaException(error))
