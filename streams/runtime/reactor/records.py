"""From raw records to typed rows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from streams.runtime.avro import Dead, Decoder
from streams.runtime.avro.typed import TypedReader
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
        self._reader = TypedReader(topic, decoder)
        self._patience = patience

    async def read(self, span: Span) -> list[Reading]:
        """The reading of every record of the span, in order."""
        values = span.values()
        return await asyncio.to_thread(
            lambda: self._patience(
                span.seat, lambda: [_reading(one) for one in self._reader.read(values)]
            )
        )


def _reading(one: tuple[str, Any] | Dead | None) -> Reading:
    match one:
        case None:
            return Reading()
        case Dead(reason=reason):
            return Reading(dead=reason)
        case (name, row):
            return Reading(name, row)
