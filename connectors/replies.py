"""Hears the verdicts that deciders publish, for those of this process that wait for them.

One subscription per process. Lost messages (Redis down, a reconnect) are not noticed here: the
request then waits until its deadline and is told where to ask later.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self

import msgspec
import redis.asyncio
import structlog

from connectors.subscription import TIMEOUT_S, Subscription
from streams.runtime.decider.replies import Answer, answer_key, channel, decode

RECONNECT_S = 0.5

log = structlog.get_logger()

Verdict = asyncio.Future[Answer]


class Replies(Protocol):
    """What a route needs to wait for a verdict."""

    address: str
    """The `reply_to` of this process's commands."""

    @contextmanager
    def expect(self, correlation_id: str) -> Iterator[Verdict]:
        """A future of the verdict, heard from entry to exit."""
        ...

    async def kept(self, correlation_id: str) -> Answer | None:
        """A verdict of the last hour, however it was asked for; None: not yet, or long ago.
        Raises `RedisError` when the store does not answer.
        """
        ...


class Waiters:
    """The verdicts that this process waits for."""

    def __init__(self) -> None:
        self._open: dict[str, Verdict] = {}

    @contextmanager
    def expect(self, correlation_id: str) -> Iterator[Verdict]:
        """As `Replies.expect`."""
        verdict: Verdict = asyncio.get_running_loop().create_future()
        self._open[correlation_id] = verdict
        try:
            yield verdict
        finally:
            del self._open[correlation_id]
            verdict.cancel()

    def heard(self, answer: Answer) -> None:
        """Give a verdict to who waits for it; verdicts come twice when owners change."""
        verdict = self._open.get(answer.correlation_id)
        if verdict is not None and not verdict.done():
            verdict.set_result(answer)


class NoReplies(Waiters):
    """For services without deciders: nothing is ever heard."""

    address = ""

    async def kept(self, correlation_id: str) -> Answer | None:
        """Nothing."""
        return None


class RedisReplies(Waiters):
    """Hears verdicts over Redis. An async context manager; starts while Redis is down."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.address = channel(uuid.uuid4().hex)
        self._client: Any = redis.asyncio.Redis.from_url(
            url, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S
        )
        self._subscription = Subscription(
            self._client,
            self.address,
            self._take,
            trouble="verdicts are not heard",
            reconnect_s=RECONNECT_S,
        )
        self.subscribed = self._subscription.subscribed

    async def __aenter__(self) -> Self:
        await self._subscription.__aenter__()
        return self

    async def __aexit__(self, *of: object) -> None:
        await self._subscription.__aexit__(*of)
        await self._client.aclose()

    async def kept(self, correlation_id: str) -> Answer | None:
        """As `Replies.kept`."""
        raw = await self._client.get(answer_key(correlation_id))
        return None if raw is None else decode(raw)

    def _take(self, raw: bytes) -> None:
        try:
            answer = decode(raw)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            log.warning("a verdict cannot be read", error=str(error))
        else:
            self.heard(answer)
