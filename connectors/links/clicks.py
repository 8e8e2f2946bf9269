"""Clicks to the log, without making anybody wait: a redirect is worth more than its count.

What is in flight is bounded by the producer. A click that could not be handed over or was not
confirmed is counted and logged: never lost in silence.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import structlog

from connectors.producer import EventProducer, ProducerError
from schemas.links.events import CLICKS, LINK_CLICKED, LinkClicked

log = structlog.get_logger()


class ClickLog:
    """Sends clicks in the background. An async context manager: leaving waits for them."""

    def __init__(self, producer: EventProducer) -> None:
        self._producer = producer
        self._sending: set[asyncio.Task[Any]] = set()
        self.lost = 0
        """Clicks that are not known to be in the log."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        while self._sending:
            await asyncio.wait(self._sending)

    def record(self, click: LinkClicked) -> None:
        """Send a click; returns at once."""
        task = asyncio.create_task(self._send(click))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send(self, click: LinkClicked) -> None:
        try:
            await self._producer.send(CLICKS.name, LINK_CLICKED.name, click)
        except ProducerError as error:
            self.lost += 1
            log.warning("a click may be lost", code=click.code, error=str(error), lost=self.lost)
