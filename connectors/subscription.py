"""One channel of Redis, heard for as long as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

import structlog
from redis.exceptions import RedisError

from streams.runtime.ending import end

TIMEOUT_S = 2.0
"""Of connecting and of a read."""

log = structlog.get_logger()


class Subscription:
    """Calls `hear(raw)` for every message of a channel. An async context manager; starts while
    Redis is down, and subscribes again after `reconnect_s`, logging `trouble`. What is told
    meanwhile is lost.
    """

    def __init__(
        self,
        client: Any,
        channel: str,
        hear: Callable[[bytes], None],
        *,
        trouble: str,
        reconnect_s: float,
    ) -> None:
        self._client = client
        self._channel = channel
        self._hear = hear
        self._trouble = trouble
        self._reconnect_s = reconnect_s
        self._listening: asyncio.Task[None] | None = None
        self.subscribed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            await end(self._listening)

    async def _listen(self) -> None:
        while True:
            try:
                await self._follow()
            except RedisError as error:
                log.warning(self._trouble, error=str(error), retry_s=self._reconnect_s)
            self.subscribed.clear()
            await asyncio.sleep(self._reconnect_s)

    async def _follow(self) -> None:
        async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
            await subscription.subscribe(self._channel)
            self.subscribed.set()
            while True:
                # A read that ends without a message is no error; one that fails reconnects.
                message = await subscription.get_message(timeout=TIMEOUT_S / 2)
                if message is not None:
                    self._hear(message["data"])
