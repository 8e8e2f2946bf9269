"""Campaigns: a part of one becomes a command a recipient, a few at a time.

A campaign never stands in the command topic as a whole: the next `TOGETHER` recipients come in
when those before them are decided, and no faster than `RATE_PER_S`. So a one-time code waits
behind a handful of recipients and not behind a campaign, however large that is and however slow
the decider. A part that is repeated after a crash changes nothing: each recipient's command has
the campaign as idempotency key.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from connectors.notifications.bucket import Bucket
from connectors.notifications.commands import open_commands
from schemas.notifications.events import CampaignSubmitted, SendNotification
from streams.runtime.reactor.rules import Route, Task
from streams.runtime.settings import Settings

RATE_PER_S = 2_000
"""Recipients a second and worker process."""
TOGETHER = 50
"""So many commands are decided before more are sent."""
_NAMESPACE = uuid.UUID("2b0b6b52-13cf-4a0e-9d0c-0d6f2f3d9b51")


class Settles(Protocol):
    """Where commands go, and wait to be decided."""

    async def settle(self, rows: Sequence[Any]) -> None: ...


class Campaigns:
    """`Handler` of the topic of campaigns."""

    def __init__(
        self,
        commands: Settles,
        bucket: Bucket,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._commands = commands
        self._bucket = bucket
        self._sleep = sleep

    def route(self, record: str, row: Any) -> Route | None:
        """One part of a campaign after the other."""
        return Route(target=row.campaign_id)

    async def act(self, task: Task) -> None:
        """Send the commands of one part."""
        row: CampaignSubmitted = task.row
        for first in range(0, len(row.user_ids), TOGETHER):
            some = row.user_ids[first : first + TOGETHER]
            wait = self._bucket.take(float("inf"))
            await self._sleep((wait or 0.0) / 1_000)
            await self._commands.settle([command(row, user) for user in some])

    def gave_up(self, task: Task, reason: str) -> None:
        """Nothing to report: the dead letter is what there is to see."""


def command(row: CampaignSubmitted, user_id: str) -> SendNotification:
    """What is asked for one recipient; the same at every try."""
    key = f"campaign:{row.campaign_id}"
    return SendNotification(
        notification_id=str(uuid.uuid5(_NAMESPACE, f"{key}\n{user_id}")),
        user_id=user_id,
        template=row.template,
        template_version=row.template_version,
        priority=row.priority,
        channels=row.channels,
        params=row.params,
        idempotency_key=key,
        happened_at=row.happened_at,
        send_at=row.send_at,
        expires_at=row.expires_at,
        digest_key="",
        digest_window_ms=0,
    )


@asynccontextmanager
async def open_campaigns(settings: Settings) -> AsyncIterator[Campaigns]:
    """The handler over the real log."""
    async with open_commands(settings) as commands:
        bucket = Bucket(RATE_PER_S / TOGETHER, 1, lambda: time.monotonic() * 1_000)
        yield Campaigns(commands, bucket)
