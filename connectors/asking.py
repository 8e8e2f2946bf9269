"""Asking a decider from inside a process: a command out, its verdict back.

For requests of clients there is `api.commands`, which answers 202 where a verdict takes too long;
here a caller needs the answer to go on.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from connectors.encode import Encoder
from connectors.producer import EventProducer, LogProducer, ProducerError
from connectors.replies import RedisReplies, Replies
from schemas.registry import schema_ids
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

TIMEOUT_S = 5.0


class NoVerdict(Exception):
    """The command may or may not be decided: the log, the decider or the way back is down."""


class Refused(Exception):
    """The decider said no; `code` is the rule's."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code
        self.detail = detail


class Asks(Protocol):
    """What who needs a verdict is given."""

    async def ask(self, topic: Topic, row: Any, key: str = "") -> dict[str, Any]:
        """The verdict's body. With an idempotency `key` the same may be asked again.

        Raises `Refused`, and `NoVerdict` when none comes in time.
        """
        ...


@dataclass(frozen=True)
class Asking:
    """Asks over the log, and hears over Redis."""

    producer: EventProducer
    replies: Replies
    timeout_s: float = TIMEOUT_S

    async def ask(self, topic: Topic, row: Any, key: str = "") -> dict[str, Any]:
        """As `Asks.ask`."""
        envelope = Envelope(
            correlation_id=str(uuid.uuid4()),
            reply_to=self.replies.address,
            idempotency_key=key,
            fingerprint=repr(row) if key else "",
        )
        with self.replies.expect(envelope.correlation_id) as verdict:
            headers = envelope_headers(envelope)
            try:
                await self.producer.send(topic.name, type(row).__name__, row, headers)
                answer = await asyncio.wait_for(verdict, self.timeout_s)
            except (TimeoutError, ProducerError) as error:
                raise NoVerdict(f"{topic.name} does not answer: {error!r}") from error
        body: dict[str, Any] = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            raise Refused(answer.status, str(body.get("code", "")), str(body.get("detail", "")))
        return body


@asynccontextmanager
async def open_asking(settings: Settings, *topics: Topic) -> AsyncIterator[Asking]:
    """Connect to these command topics and to where verdicts are heard."""
    encoders = {
        topic.name: Encoder(topic, await asyncio.to_thread(schema_ids, topic, settings.registry))
        for topic in topics
    }
    async with (
        LogProducer.open(settings.kafka, encoders) as producer,
        RedisReplies(settings.redis.url.get_secret_value()) as replies,
    ):
        await asyncio.wait_for(replies.subscribed.wait(), TIMEOUT_S)
        yield Asking(producer, replies)
