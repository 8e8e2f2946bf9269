"""The lane with every guarantee on. Usage: lane RECORDS STORE

Started as a worker starts it: Faust app and agent, guarded decode, watermark, windows, fenced
writes, metrics, commits. The clock runs from the moment the last partition was located, before
anything is fetched, until the write that completes the topic is durable.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from sinks.open import open_sink
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.lane.service import LaneApp, Wiring, build_app, lane
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, Write
from tests.bench.clicks import topic
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.rule import projection


class Watched:
    """A sink that times its first load to its last write and calls `done` after the latter."""

    def __init__(self, sink: Sink, records: int) -> None:
        self._sink = sink
        self._records = records
        self._watch = Stopwatch()
        self.consumed: dict[int, int] = {}
        self.took: tuple[float, float] | None = None
        self.done: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        stored = self._sink.load(version, topic, partition)
        if not self.consumed:
            self._watch.start()
        return stored

    def write(self, version: int, write: Write) -> None:
        self._sink.write(version, write)
        self.consumed[write.partition] = write.position.next_offset
        if self.took is None and sum(self.consumed.values()) >= self._records:
            self.took = self._watch.stop()
            self.done()


async def run(records: int, store: str, folder: Path) -> Finish:
    """Fold the whole topic once."""
    settings = Settings.read()
    folded = projection(topic(records), store)
    sink = Watched(open_sink(store, folded.model, settings), records)
    app = await build_app(
        f"bench-{store}",
        settings.kafka,
        [lane(folded, _wiring(settings, sink, folder))],
        free_port(),
        folder,
    )
    loop = asyncio.get_running_loop()
    sink.done = lambda: loop.call_soon_threadsafe(app.end)
    await _until_ended(app)
    count, cost = _stored(open_sink(store, folded.model, settings))
    if sink.took is None:
        raise RuntimeError("the lane ended before the topic did")
    return Finish(*sink.took, sink.consumed, count, cost)


async def _until_ended(app: LaneApp) -> None:
    await app.start()
    error = await app.ended
    await app.stop()
    if error is not None:
        raise error


def _wiring(settings: Settings, sink: Any, folder: Path) -> Wiring:
    def opened(_: Projection) -> Sink:
        return sink  # type: ignore[no-any-return]

    return Wiring(
        system="bench",
        kafka=settings.kafka,
        schemas=RegistrySource(settings.registry.url),
        open_sink=opened,
        metrics=metrics.default(),
        journals=folder,
        reader=settings.reader,
    )


def _stored(sink: Sink) -> tuple[int, int]:
    rows = pl.concat(sink.rows(sink.live_version(), "windows"))
    return int(rows["clicks"].sum()), int(rows["cost_micros"].sum())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(records: int, store: str) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, store, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
