"""A sink for output that nothing keeps, Nexmark's `blackhole`: it adds up what it is given."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.sink import ReadModel, Upsert, Write
from tests.bench.nexmark.oracle import sums


class DiscardSink(MemorySink):
    """Positions are kept and fenced as everywhere; rows only go into `sums`."""

    def __init__(self, model: ReadModel) -> None:
        super().__init__(model, MemoryStore())
        self.sums: Counter[str] = Counter()

    def write(self, version: int, write: Write) -> None:
        super().write(version, replace(write, changes=()))
        for change in write.changes:
            if isinstance(change, Upsert):
                self.sums.update(sums(change.rows))
