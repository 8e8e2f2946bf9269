"""Who is there: the sessions of every user, each for as long as its heartbeat lasts.

A session is a field of a hash per user, with a time to live of its own (Valkey 9, Redis 8:
HSETEX), so a process that dies takes its sessions with it after `TTL_MS` without a word. The value
is the process that has the socket. Nothing here is needed for delivery: without Redis everybody
counts as away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import redis.asyncio
from redis.exceptions import RedisError

from streams.runtime.settings import Settings
from streams.runtime.sink import SinkUnavailable

TTL_MS: Final = 45_000
"""A session counts for so long after its last heartbeat; clients send one every 15 s or so."""
TIMEOUT_S: Final = 2.0


def _key(user: str) -> str:
    return f"chat:sessions:{{{user}}}"


class Presence:
    """Raises `SinkUnavailable` when Redis does not answer."""

    def __init__(self, client: Any, ttl_ms: int = TTL_MS) -> None:
        self._client = client
        self._ttl_ms = ttl_ms

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, ttl_ms: int = TTL_MS) -> AsyncIterator[Presence]:
        """The real one; connects when it is first asked."""
        client: Any = redis.asyncio.Redis.from_url(
            settings.redis.url.get_secret_value(),
            socket_connect_timeout=TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
            decode_responses=True,
        )
        try:
            yield cls(client, ttl_ms)
        finally:
            await client.aclose()

    async def heard(self, sessions: Sequence[tuple[str, str]], server: str) -> None:
        """A heartbeat of each `(user, session)`, in one round trip."""
        await self._all(
            *(
                ("HSETEX", _key(user), "PX", self._ttl_ms, "FIELDS", 1, session, server)
                for user, session in sessions
            )
        )

    async def left(self, sessions: Sequence[tuple[str, str]]) -> None:
        """These sessions have ended."""
        await self._all(*(("HDEL", _key(user), session) for user, session in sessions))

    async def sessions(self, users: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """The sessions of each user, with the process of each."""
        found = await self._all(*(("HGETALL", _key(user)) for user in users))
        return dict(zip(users, found, strict=True))

    async def online(self, users: Sequence[str]) -> dict[str, bool]:
        """Who has a session."""
        return {user: bool(found) for user, found in (await self.sessions(users)).items()}

    async def _all(self, *commands: Sequence[Any]) -> list[Any]:
        if not commands:
            return []
        pipeline = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        try:
            answers: list[Any] = await pipeline.execute()
        except RedisError as error:
            raise SinkUnavailable(f"presence: {error}") from error
        return answers
