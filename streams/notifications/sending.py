"""The lanes' reactors: a message is rendered, given to a provider, and reported.

A message has its id from the decision on, so whatever is repeated (a crash between call and
report, another provider after a time-out) carries the same one. A text that cannot be rendered or
an address that is no more is an outcome; a provider that does not answer is tried again.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

from connectors.notifications.commands import open_commands
from connectors.notifications.failover import Failover
from connectors.notifications.message import HeldBack, InvalidAddress, Message, Refused, Temporary
from connectors.notifications.settings import NotificationSettings
from connectors.notifications.templates import Template, TemplateError
from schemas.notifications.events import (
    DeliveryReported,
    DeliveryRequested,
    DeliveryStatus,
    RemoveDevice,
    TemplatePublished,
)
from sinks.notifications import TEMPLATES
from sinks.notifications.reader import TemplatesReader
from sinks.open import open_redis_reader
from streams.runtime.reactor.rules import Retry, Route, Task
from streams.runtime.settings import Settings

TEMPLATES_MAX = 1_000
TEMPLATE_RETRY_MS = 1_000
"""A message may come before the read model has its template."""


class Texts(Protocol):
    """Where templates are read."""

    async def template(self, name: str, version: str = "") -> TemplatePublished | None: ...


class Asks(Protocol):
    """Where commands go."""

    async def send(self, rows: Sequence[Any]) -> None: ...


class Sending:
    """`Handler` of one lane."""

    def __init__(
        self,
        channels: Mapping[str, Failover],
        texts: Texts,
        commands: Asks,
        now_ms: Callable[[], int],
    ) -> None:
        self._channels = channels
        self._texts = texts
        self._commands = commands
        self._now_ms = now_ms
        self._compiled: dict[tuple[str, str], Template] = {}

    def route(self, record: str, row: Any) -> Route | None:
        """One address gets one message at a time; breakers are with the providers."""
        return Route(target=f"{row.channel}:{row.address}")

    async def act(self, task: Task) -> DeliveryReported:
        """Send one message. Raises `Retry`."""
        row: DeliveryRequested = task.row
        if row.expires_at is not None and row.expires_at <= self._now_ms():
            return self._report(row, "expired", detail="too late to be of use")
        template = await self._template(row)
        try:
            shown = template.render(row.channel, row.locale, row.params)
            message = Message(
                row.delivery_id, row.channel, row.address, shown.subject, shown.text, shown.html
            )
            sent = await self._channels[row.channel].send(message)
        except InvalidAddress as error:
            if row.channel == "push":
                await self._commands.send([RemoveDevice(row.user_id, row.address, "invalid")])
            return self._report(row, "invalid_address", detail=str(error))
        except (Refused, TemplateError) as error:
            return self._report(row, "failed", detail=str(error))
        except Temporary as error:
            counts = not isinstance(error, HeldBack)
            raise Retry(str(error), after_ms=error.after_ms, counts=counts) from None
        return self._report(row, "sent", provider=sent.provider, message_id=sent.message_id)

    def gave_up(self, task: Task, reason: str) -> DeliveryReported:
        """The outcome after the last try."""
        return self._report(task.row, "failed", detail=reason)

    async def _template(self, row: DeliveryRequested) -> Template:
        """Versions never change, so a compiled one is kept."""
        key = (row.template, row.template_version)
        if key not in self._compiled:
            published = await self._texts.template(*key)
            if published is None:
                reason = f"template {row.template} {row.template_version} is not there (yet)"
                raise Retry(reason, after_ms=TEMPLATE_RETRY_MS)
            while len(self._compiled) >= TEMPLATES_MAX:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[key] = Template(published)
        return self._compiled[key]

    def _report(
        self,
        row: DeliveryRequested,
        status: DeliveryStatus,
        *,
        provider: str = "",
        message_id: str = "",
        detail: str = "",
    ) -> DeliveryReported:
        return DeliveryReported(
            notification_id=row.notification_id,
            delivery_id=row.delivery_id,
            channel=row.channel,
            status=status,
            provider=provider,
            provider_message_id=message_id,
            detail=detail[:500],
            reported_at=self._now_ms(),
        )


@asynccontextmanager
async def open_sending(lane: str, settings: Settings) -> AsyncIterator[Sending]:
    """The handler of a lane over the real providers."""
    async with AsyncExitStack() as opened:
        channels = NotificationSettings.read().open(lane)
        for failover in channels.values():
            opened.push_async_callback(failover.close)
        texts = TemplatesReader(open_redis_reader(TEMPLATES, settings))
        opened.push_async_callback(texts.close)
        commands = await opened.enter_async_context(open_commands(settings))
        yield Sending(channels, texts, commands, wall_ms)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return int(time.time() * 1_000)
