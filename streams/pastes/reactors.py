"""What nobody needs any more is deleted in the object store, and that it is gone is recorded.

Deleting is harmless to repeat: an object's name is never used again. The report of a repeat is
refused by the decider, so a paste has one proof that its content is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from schemas.pastes.events import OBJECT_DROPPED, PASTE_CHANGED, ReportPurged
from sinks.pastes.objects import Objects, S3Objects
from streams.runtime.reactor.rules import Retry, Route, Task
from streams.runtime.settings import Settings
from streams.runtime.sink import SinkError


class Purge:
    """Deletes what events say is dropped."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def route(self, record: str, row: Any) -> Route | None:
        """Events that drop an object."""
        drops = record == OBJECT_DROPPED.fullname or (
            record == PASTE_CHANGED.fullname and row.dropped
        )
        return Route(provider="objects") if drops else None

    async def act(self, task: Task) -> ReportPurged | None:
        """Delete, and report the end of a paste; of an upload that was not needed there is none."""
        row, ends = task.row, task.record == PASTE_CHANGED.fullname
        name = row.dropped if ends else row.object
        try:
            await self._objects.delete(name)
        except SinkError as error:
            raise Retry(str(error)) from error
        return ReportPurged(row.id, name) if ends and row.ended else None

    def gave_up(self, task: Task, reason: str) -> None:
        """The object stays, and the paste is not purged, until an operator sends the event again;
        the reconciler finds the object, too.
        """


@asynccontextmanager
async def open_purge(settings: Settings) -> AsyncIterator[Purge]:
    """Over the bucket of the settings."""
    async with S3Objects.open(settings) as objects:
        yield Purge(objects)
