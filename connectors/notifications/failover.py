"""Several providers of one channel: the first that can take a message gets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from connectors.notifications.bucket import Breaker, Bucket
from connectors.notifications.message import HeldBack, Message, Provider, Refused, Temporary

WAIT_MS_MAX = 2_000
"""A token is waited for so long; a provider whose bucket needs longer is passed over."""


@dataclass(frozen=True)
class Line:
    """A provider with its limits."""

    provider: Provider
    bucket: Bucket
    breaker: Breaker


@dataclass(frozen=True)
class Sent:
    """Who took a message, and under which id."""

    provider: str
    message_id: str


class Failover:
    """Tries providers in their order. A broken one is left alone for a while (breaker), a busy one
    as long as it asks (bucket).
    """

    def __init__(
        self,
        lines: Sequence[Line],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._lines = tuple(lines)
        self._sleep = sleep

    async def send(self, message: Message) -> Sent:
        """Hand the message to the first provider that takes it.

        Raises `Refused` as soon as one says that nobody ever could, and `Temporary`, with the time
        of the next chance if it is known, where all are down or busy; `HeldBack` where none was
        even called.
        """
        reasons: list[str] = []
        chances: list[float | None] = []
        called = False
        for line in self._lines:
            name = line.provider.name
            if line.breaker.wait_ms > 0:
                reasons.append(f"{name}: left alone")
                chances.append(line.breaker.wait_ms)
                continue
            wait = line.bucket.take(WAIT_MS_MAX)
            if wait is None or not line.breaker.admit():
                reasons.append(f"{name}: limit reached")
                chances.append(max(line.bucket.wait_ms, line.breaker.wait_ms))
                continue
            if wait > 0:
                await self._sleep(wait / 1_000)
            called = True
            try:
                return await self._call(line, message)
            except Temporary as error:
                reasons.append(f"{name}: {error}")
                chances.append(error.after_ms)
        reason = "; ".join(reasons) or f"no provider of {message.channel}"
        kind = Temporary if called or not self._lines else HeldBack
        known = [ms for ms in chances if ms is not None]
        certain = bool(known) and len(known) == len(chances)
        raise kind(reason, after_ms=int(min(known)) + 1 if certain else None)

    async def close(self) -> None:
        """Release the providers' connections."""
        for line in self._lines:
            await line.provider.close()

    @staticmethod
    async def _call(line: Line, message: Message) -> Sent:
        try:
            made = await line.provider.send(message)
        except Temporary as error:
            if error.after_ms is None:
                line.breaker.failed()
            else:  # it works, and says that it has enough
                line.breaker.succeeded()
                line.bucket.pause(error.after_ms)
            raise
        except Refused:
            line.breaker.succeeded()
            raise
        except BaseException:
            line.breaker.failed()
            raise
        line.breaker.succeeded()
        return Sent(line.provider.name, made)
