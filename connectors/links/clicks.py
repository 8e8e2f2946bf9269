"""Clicks to the log, without making anybody wait: a redirect is worth more than its count.

They are sent a few milliseconds' worth at a time. What is in flight is bounded by the producer. A
click that could not be handed over or was not confirmed is counted and logged: never lost in
silence.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Self

import structlog

from connectors.producer import EventProducer, ProducerError
from schemas.links.events import CLICKS, LINK_CLICKED, LinkClicked

log = structlog.get_logger()

LINGER_S: Final = 0.005
"""How long a click waits for others: one hand-over and one confirmation for all of them."""


class ClickLog:
    """Sends clicks in the background. An async context manager: leaving waits for them."""

    def __init__(self, producer: EventProducer) -> None:
        self._producer = producer
        self._waiting: list[tuple[str, LinkClicked]] = []
        self._sending: set[asyncio.Task[Any]] = set()
        self.lost = 0
        """Clicks that are not known to be in the log."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._send()
        while self._sending:
            await asyncio.wait(self._sending)

    def record(self, click: LinkClicked) -> None:
        """Send a click; returns at once."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(LINGER_S, self._send)
        self._waiting.append((LINK_CLICKED.name, click))

    def _send(self) -> None:
        clicks, self._waiting = self._waiting, []
        if clicks:
            task = asyncio.create_task(self._sent(clicks))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _sent(self, clicks: list[tuple[str, LinkClicked]]) -> None:
        try:
            await self._producer.send_many(CLICKS.name, clicks)
        except ProducerError as error:
            self.lost += len(clicks)
            log.warning("clicks may be lost", clicks=len(clicks), error=str(error), lost=self.lost)
