"""Headrace, started as a worker starts it, every guarantee on.

Usage: headrace VARIANT NAME RECORDS. With RECORDS 0 it runs until it is ended; else the clock runs
from the moment the last partition was located until the write that completes the topic is durable.
After a crash it goes on where the store says.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import polars as pl

from infra.local.ports import free_port
from sinks.open import open_sink
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.lane.service import Wiring, build_app, lane
from streams.runtime.position import Position
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, Upsert, Write
from tests.bench.contenders.finish import WARM_UP, Finish, Stopwatch, say
from tests.bench.ysb.events import Variant, topic
from tests.bench.ysb.rule import projection


class Stamped:
    """A sink that sets `updated_ms` at the write, as the benchmark's clients do, and times it all:
    from the first load to the write that completes `records`, when it calls `done`.
    """

    def __init__(self, sink: Sink, records: int) -> None:
        self._sink = sink
        self._records = records
        self._watch = Stopwatch()
        self._read_s = 0.0
        self.consumed: dict[int, int] = {}
        self.warm: tuple[int, float] | None = None
        self.took: tuple[float, float] | None = None
        self.done: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        stored = self._sink.load(version, topic, partition)
        self.consumed[partition] = stored.next_offset if stored else 0
        if not self.warm:
            self._watch.start()
        return stored

    def write(self, version: int, write: Write) -> None:
        now_ms = pl.lit(time.time_ns() // 1_000_000, pl.Int64).alias("updated_ms")
        changes = [
            replace(c, rows=c.rows.with_columns(now_ms)) if isinstance(c, Upsert) else c
            for c in write.changes
        ]
        self._sink.write(version, replace(write, changes=changes))
        self.consumed[write.partition] = write.position.next_offset
        self._note(sum(self.consumed.values()))

    def _note(self, events: int) -> None:
        if self.warm is None and events >= WARM_UP:
            self.warm = events, time.perf_counter()
        if self.took is None and 0 < self._records <= events:
            self.took = self._watch.stop()
            self.done()

    def finish(self) -> Finish:
        """What the run was. Raises `RuntimeError` unless the topic was read to its end."""
        if self.took is None:
            raise RuntimeError("the lane ended before the topic did")
        done = Finish(*self.took, self.consumed)
        events = sum(self.consumed.values())
        if self.warm is None or events <= self.warm[0]:
            return done
        since_s = self._watch.wall_s + self.took[0] - self.warm[1]
        return msgspec.structs.replace(done, steady_events=events - self.warm[0], steady_s=since_s)


async def run(variant: Variant, name: str, records: int, folder: Path) -> Finish:
    """Fold the topic to its end, or for ever."""
    settings = Settings.read()
    query = projection(topic(variant, name))
    sink = Stamped(open_sink(query.store, query.model, settings), records)
    wiring = Wiring(
        system="bench",
        kafka=settings.kafka,
        schemas=RegistrySource(settings.registry.url),
        open_sink=lambda _: sink,
        metrics=metrics.default(),
        journals=folder,
    )
    app = await build_app(query.name, settings.kafka, [lane(query, wiring)], free_port(), folder)
    loop = asyncio.get_running_loop()
    sink.done = lambda: loop.call_soon_threadsafe(app.end)
    await app.start()
    error = await app.ended
    await app.stop()
    if error is not None:
        raise error
    return sink.finish()


def main(variant: Variant, name: str, records: int) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(variant, name, records, Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))  # type: ignore[arg-type]
