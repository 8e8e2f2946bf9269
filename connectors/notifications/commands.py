"""Commands to the notification system from inside: of reactors, that ask for no verdict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from connectors.encode import Encoder
from connectors.producer import LogProducer
from schemas.notifications.events import COMMANDS
from schemas.registry import schema_ids
from streams.runtime.settings import Settings


class Commands:
    """The command topic, for writing."""

    def __init__(self, producer: LogProducer) -> None:
        self._producer = producer

    async def send(self, rows: Sequence[Any]) -> None:
        """Append commands; returns when they are durable. Raises what the producer raises."""
        await self._producer.send_many(COMMANDS.name, [(type(row).__name__, row) for row in rows])


@asynccontextmanager
async def open_commands(settings: Settings) -> AsyncIterator[Commands]:
    """Connect to the log."""
    ids = await asyncio.to_thread(schema_ids, COMMANDS, settings.registry)
    async with LogProducer.open(settings.kafka, {COMMANDS.name: Encoder(COMMANDS, ids)}) as opened:
        yield Commands(opened)
