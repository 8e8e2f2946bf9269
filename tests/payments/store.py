"""Books in memory: the fold over events, and a reader over what it stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.payments.events import EVENTS
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.payments import BOOKS
from streams.payments import SYSTEM
from streams.runtime.kafka import partition_of
from streams.runtime.testing import Harness
from tests.rows import MemoryRows

(PROJECTION,) = SYSTEM.projections


def sink() -> MemorySink:
    """An empty store."""
    return MemorySink(BOOKS, MemoryStore())


def stored(log: Sequence[tuple[int, Any]], into: MemorySink | None = None) -> MemoryRows:
    """The books of a log of one book, or of books that share a partition."""
    into = into or sink()
    harness = Harness(PROJECTION, into, partition=partition_of("main", EVENTS.partitions))
    harness.send(*(row for _, row in log))
    harness.run()
    return MemoryRows(into)
