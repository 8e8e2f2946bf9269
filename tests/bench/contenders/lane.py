"""The lane with every guarantee on. Usage: lane RECORDS STORE

Started as a worker starts it: Faust app and agent, guarded decode, watermark, windows, fenced
writes, metrics, commits. The clock runs from the moment the last partition was located, before
anything is fetched, until the write that completes the topic is durable.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
from msgspec import structs

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


class Watched:
    """A sink that times its first load to its last write and calls `done` after the latter.

    `complete` says whether the records stored so far by partition are all; steady state begins
    with the write that brings them to `warm_up`.
    """

    def __init__(
        self, sink: Sink, complete: Callable[[dict[int, int]], bool], warm_up: int = WARM_UP
    ) -> None:
        self._sink = sink
        self._complete = complete
        self._warm_up = warm_up
        self._warm: tuple[int, float] | None = None
        self.watch = Stopwatch()
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
        self.consumed[write.partition] = write.position.next_offset
        stored = sum(self.consumed.values())
        if self._warm is None and stored >= self._warm_up:
            self._warm = stored, self.watch.stop()[0]
        if self.finish is None and self._complete(self.consumed):
            self.finish = self._finish(*self.watch.stop())
            self.done()

    def _finish(self, seconds: float, cpu_s: float) -> Finish:
        warm, warm_s = self._warm or (0, 0.0)
        steady = sum(self.consumed.values()) - warm
        return Finish(
            seconds,
            cpu_s,
            dict(self.consumed),
            steady_events=steady if warm and steady else None,
            steady_s=seconds - warm_s if warm and steady else None,
        )


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
    )


def with_totals(finish: Finish, sink: Sink) -> Finish:
    """The finish with what a reader finds in the store."""
    rows = pl.concat(sink.rows(sink.live_version(), "windows"))
    clicks, cost = int(rows["clicks"].sum()), int(rows["cost_micros"].sum())
    return structs.replace(finish, count=clicks, cost_micros=cost, results=rows.height)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(records: int, store: str) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, store, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
