"""Who is writing right now, told between the processes of the API over Redis, and never logged.

One channel and one subscription a process. What is lost is lost: nobody waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Self

import msgspec
import redis.asyncio
import structlog
from redis.exceptions import RedisError

from connectors.subscription import TIMEOUT_S, Subscription

CHANNEL: Final = "chat:typing"
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
        self._subscription = Subscription(
            self._client,
            channel,
            self._take,
            trouble="typing is not heard",
            reconnect_s=RECONNECT_S,
        )
        self.subscribed = self._subscription.subscribed

    async def __aenter__(self) -> Self:
        await self._subscription.__aenter__()
        return self

    async def __aexit__(self, *of: object) -> None:
        await self._subscription.__aexit__(*of)
        await self._client.aclose()

    async def tell(self, conversation_id: str, user: str) -> None:
        """Say that somebody writes; if Redis is away, nobody hears."""
        try:
            await self._client.publish(self._channel, msgspec.json.encode((conversation_id, user)))
        except RedisError as error:
            log.debug("typing is not told", error=str(error))

    def _take(self, raw: bytes) -> None:
        try:
            told = msgspec.json.decode(raw, type=tuple[str, str])
        except msgspec.DecodeError:
            return
        self._hear(*told)
