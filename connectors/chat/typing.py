"""Who is writing right now, told between the processes of the API over Redis, and never logged.

One channel and one subscription a process. What is lost is lost: nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec
import redis.asyncio
import structlog
from redis.exceptions import RedisError

from streams.runtime.ending import end

CHANNEL: Final = "chat:typing"
TIMEOUT_S: Final = 2.0
RECONNECT_S: Final = 1.0

log = structlog.get_logger()


class Typing:
    """An async context manager. `hear(conversation, user)` is called for everybody, oneself too."""

    def __init__(self, url: str, hear: Callable[[str, str], None], channel: str = CHANNEL) -> None:
        self._hear = hear
        self._channel = channel
        self._client: Any = redis.asyncio.Redis.from_url(
            url, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S
        )
        self._listening: asyncio.Task[None] | None = None
        self.subscribed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listening is not None:
            await end(self._listening)
        await self._client.aclose()

    async def tell(self, conversation_id: str, user: str) -> None:
        """Say that somebody writes; if Redis is away, nobody hears."""
        try:
            await self._client.publish(self._channel, msgspec.json.encode((conversation_id, user)))
        except RedisError as error:
            log.debug("typing is not told", error=str(error))

    async def _listen(self) -> None:
        while True:
            try:
                async with self._client.pubsub(ignore_subscribe_messages=True) as subscription:
                    await subscription.subscribe(self._channel)
                    self.subscribed.set()
                    while True:
                        message = await subscription.get_message(timeout=TIMEOUT_S / 2)
                        if message is not None:
                            self._take(message["data"])
            except RedisError as error:
                log.warning("typing is not heard", error=str(error), retry_s=RECONNECT_S)
            self.subscribed.clear()
            await asyncio.sleep(RECONNECT_S)

    def _take(self, raw: bytes) -> None:
        try:
            told = msgspec.json.decode(raw, type=tuple[str, str])
        except msgspec.DecodeError:
            return
        self._hear(*told)
