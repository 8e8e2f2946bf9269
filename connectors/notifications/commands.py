"""Commands to the notification system from inside: of reactors, not of clients."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from typing import Any

from connectors.encode import Encoder
from connectors.producer import EventProducer, LogProducer
from connectors.replies import RedisReplies, Replies
from schemas.notifications.events import COMMANDS
from schemas.registry import schema_ids
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.kafka import partition_of
from streams.runtime.settings import Settings

VERDICT_TIMEOUT_S = 5.0
"""After so long without a verdict (a decider that moves, a message that was lost) it goes on."""


class Commands:
    """The command topic, for writing."""

    def __init__(self, producer: EventProducer, replies: Replies) -> None:
        self._producer = producer
        self._replies = replies

    async def send(self, rows: Sequence[Any]) -> None:
        """Append commands; returns when they are durable. Raises what the producer raises."""
        await self._producer.send_many(COMMANDS.name, [(type(row).__name__, row) for row in rows])

    async def settle(self, rows: Sequence[Any]) -> None:
        """Append commands, and return when they are decided: when the last one of each partition
        is. Waits for no verdict longer than `VERDICT_TIMEOUT_S`. Raises what the producer raises.
        """
        last = {partition_of(row.user_id, COMMANDS.partitions): n for n, row in enumerate(rows)}
        marked = [rows[n] for n in last.values()]
        before = [row for n, row in enumerate(rows) if n not in last.values()]
        if before:
            await self.send(before)
        with ExitStack() as expected:
            verdicts = []
            for row in marked:
                envelope = Envelope(str(uuid.uuid4()), reply_to=self._replies.address)
                verdicts.append(
                    expected.enter_context(self._replies.expect(envelope.correlation_id))
                )
                headers = envelope_headers(envelope)
                await self._producer.send(COMMANDS.name, type(row).__name__, row, headers)
            if verdicts:
                await asyncio.wait(verdicts, timeout=VERDICT_TIMEOUT_S)


@asynccontextmanager
async def open_commands(settings: Settings) -> AsyncIterator[Commands]:
    """Connect to the log and to where verdicts are heard."""
    ids = await asyncio.to_thread(schema_ids, COMMANDS, settings.registry)
    async with (
        LogProducer.open(settings.kafka, {COMMANDS.name: Encoder(COMMANDS, ids)}) as producer,
        RedisReplies(settings.redis.url.get_secret_value()) as replies,
    ):
        yield Commands(producer, replies)
