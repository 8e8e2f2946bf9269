"""The lane with every guarantee on. Usage: lane RECORDS STORE

Started as a worker starts it: Faust app and agent, guarded decode, watermark, windows, fenced
writes, metrics, commits. The clock runs from the moment the last partition was located, before
anything is fetched, until the write that completes the topic is durable.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from msgspec import structs

from infra.local.ports import free_port
from sinks.open import open_sink
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.lane.service import LaneApp, Wiring, build_app, lane
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, Write
from tests.bench.clicks import topic
from tests.bench.contenders.finish import WARM_UP, Finish, Stopwatch, say
from tests.bench.rule import projection

Trace = list[tuple[float, int]]
"""Seconds since the start, and how many records were stored with the write of that moment."""


class Watched:
    """A sink that times its first load to its last write and calls `done` after the latter.

    `complete` says whether the records stored so far by partition are all.
    """

    def __init__(self, sink: Sink, complete: Callable[[dict[int, int]], bool]) -> None:
        self._sink = sink
        self._complete = complete
        self.watch = Stopwatch()
        self.trace: Trace = []
        self.consumed: dict[int, int] = {}
        self.finish: Finish | None = None
        self.done: Callable[[], object] = lambda: None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        stored: Position | None = self._sink.load(version, topic, partition)
        if not self.consumed:
            self.watch.start()
        return stored

    def write(self, version: int, write: Write) -> None:
        self._sink.write(version, write)
        seconds, cpu_s = self.watch.stop()
        before = self.consumed.get(write.partition, 0)
        self.consumed[write.partition] = write.position.next_offset
        self.trace.append((seconds, write.position.next_offset - before))
        if self.finish is None and self._complete(self.consumed):
            self.finish = Finish(seconds, cpu_s, dict(self.consumed), **steady(self.trace))
            self.done()


def steady(trace: Trace, warm_up: int = WARM_UP) -> dict[str, Any]:
    """`steady_events` and `steady_s` of a `Finish`: what was stored after the write that made it
    `warm_up` records, and how long that took. Empty when there was nothing more.
    """
    ordered, stored = sorted(trace), 0
    for n, (seconds, records) in enumerate(ordered):
        stored += records
        if stored >= warm_up and (rest := ordered[n + 1 :]):
            events = sum(records for _, records in rest)
            return {"steady_events": events, "steady_s": rest[-1][0] - seconds}
    return {}


async def run(records: int, store: str, folder: Path) -> Finish:
    """Fold the whole topic once."""
    settings = Settings.read()
    folded = projection(topic(records), store)
    sink = Watched(
        open_sink(store, folded.model, settings), lambda stored: sum(stored.values()) >= records
    )
    finish = await worked(settings, folded, sink, folder)
    return with_totals(finish, open_sink(store, folded.model, settings))


async def worked(
    settings: Settings,
    folded: Projection,
    sink: Watched,
    folder: Path,
    leave: Callable[[Finish], Awaitable[object]] | None = None,
) -> Finish:
    """Work as a worker until the sink is done, and until `leave` returns; then leave the group."""
    app = await build_app(
        folded.name,
        settings.kafka,
        [lane(folded, _wiring(settings, sink, folder))],
        free_port(),
        folder,
    )
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    sink.done = lambda: loop.call_soon_threadsafe(done.set)
    await app.start()
    await _until(done, app)
    finish = sink.finish
    if finish is None:
        raise RuntimeError("the lane ended before the topic did")
    if leave is not None:
        await leave(finish)
    app.end()
    await app.stop()
    return finish


async def _until(done: asyncio.Event, app: LaneApp) -> None:
    """Wait for the end of the topic; raise what ends the app before it."""
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait((waiting, app.ended), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if app.ended.done():
        await app.stop()
        error = app.ended.result()
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


def with_totals(finish: Finish, sink: Sink) -> Finish:
    """The finish with what a reader finds in the store."""
    rows = pl.concat(sink.rows(sink.live_version(), "windows"))
    clicks, cost = int(rows["clicks"].sum()), int(rows["cost_micros"].sum())
    return structs.replace(finish, count=clicks, cost_micros=cost, results=rows.height)


def main(records: int, store: str) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, store, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
