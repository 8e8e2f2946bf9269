"""Logs decisions, and never makes a request wait for it.

Rows go into a bounded queue; one task sends them in batches. What the queue has no room for, and
what the log does not confirm, is dropped and counted by reason: a limiter that fails because its
log is away would be the greater harm.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Self

import structlog
from prometheus_client import Counter

from connectors.encode import EncodeError
from connectors.producer import EventProducer, ProducerError
from schemas.limiter.events import DECISIONS, REQUEST_DECIDED
from streams.runtime.ending import end

QUEUE_MAX = 20_000
BATCH_ROWS = 100
"""About 2 ms of the event loop at once."""
LINGER_S = 0.05
FLUSH_TIMEOUT_S = 5.0

log = structlog.get_logger()


class DecisionLog:
    """The queue and its task; an async context manager, whose end sends what is queued."""

    def __init__(
        self,
        producer: EventProducer,
        dropped: Counter,
        *,
        queue_max: int = QUEUE_MAX,
        linger_s: float = LINGER_S,
    ) -> None:
        """`dropped` has the label `reason`."""
        self._producer = producer
        self._dropped = dropped
        self._queue_max = queue_max
        self._linger_s = linger_s
        self._rows: deque[dict[str, Any]] = deque()
        self._filled = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self._send_all())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._sending is not None
        await end(self._sending)
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT_S):
                while self._rows:
                    await self._send()
        except TimeoutError:
            self._drop("stopped", len(self._rows))

    def add(self, row: dict[str, Any]) -> None:
        """Queue a `RequestDecided`; never waits."""
        if len(self._rows) >= self._queue_max:
            self._drop("queue full", 1)
            return
        self._rows.append(row)
        self._filled.set()

    async def _send_all(self) -> None:
        while True:
            await self._filled.wait()
            if len(self._rows) < BATCH_ROWS:
                await asyncio.sleep(self._linger_s)
            await self._send()
            if not self._rows:
                self._filled.clear()

    async def _send(self) -> None:
        count = min(BATCH_ROWS, len(self._rows))
        batch = [(REQUEST_DECIDED.name, self._rows.popleft()) for _ in range(count)]
        try:
            await self._producer.send_many(DECISIONS.name, batch)
        except EncodeError:
            await self._send_each(batch)
        except ProducerError as error:
            self._drop(type(error).__name__, count)
        except asyncio.CancelledError:
            # It may be in the log already: readers know a request by its id.
            self._rows.extendleft(row for _, row in reversed(batch))
            raise

    async def _send_each(self, batch: list[tuple[str, dict[str, Any]]]) -> None:
        """One row cannot be written: the others are."""
        for row in batch:
            try:
                await self._producer.send_many(DECISIONS.name, [row])
            except (ProducerError, EncodeError) as error:
                self._drop(type(error).__name__, 1)

    def _drop(self, reason: str, count: int) -> None:
        self._dropped.labels(reason).inc(count)
        log.warning("decisions are not logged", reason=reason, count=count)
