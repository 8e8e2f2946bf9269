"""From raw records to typed rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from streams.runtime.avro import ROW, Decoded, Decoder
from streams.runtime.avro.typed import typed
from streams.runtime.lane.patience import Patience
from streams.runtime.lane.span import Span
from streams.runtime.topic import Topic


@dataclass(frozen=True, slots=True)
class Reading:
    """One record: its type and row; or why it is `dead`; or none of it (a tombstone)."""

    record: str = ""
    row: Any = None
    dead: str = ""


class Records:
    """Decodes the records of one topic, and of its retry topics. Waits while the registry is down;
    raises `Stopped` when that is cut short.
    """

    def __init__(self, topic: Topic, decoder: Decoder, patience: Patience) -> None:
        self._topic = topic
        self._decoder = decoder
        self._patience = patience

    async def read(self, span: Span) -> list[Reading]:
        """The reading of every record of the span, in order."""
        values = span.values()
        return await asyncio.to_thread(
            lambda: self._patience(
                span.seat, lambda: readings(self._topic, len(values), self._decoder.decode(values))
            )
        )


def readings(topic: Topic, count: int, decoded: Decoded) -> list[Reading]:
    """One reading for each of `count` values."""
    found = [Reading()] * count
    for one in decoded.dead:
        found[one.row] = Reading(dead=one.reason)
    for name, frame in decoded.frames.items():
        rows = typed(topic.record(name).row, frame.drop(ROW))
        for at, row in zip(frame[ROW].to_list(), rows, strict=True):
            found[at] = Reading(name, row)
    return found
