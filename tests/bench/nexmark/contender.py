"""A query on the lane, with every guarantee on. Usage: contender RECORDS QUERY

As `tests.bench.contenders.lane` it is started like a worker. The clock runs from the moment the
last partition was located, before anything is fetched, until the write that completes the topic is
durable; then for as long as a reader takes to merge the partitions' rows to the query's answer.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from sinks.open import open_sink
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.lane.service import Wiring, build_app, lane
from streams.runtime.outcome import Fate
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, Write
from tests.bench.contenders.finish import WARM_UP, Finish, Stopwatch, say
from tests.bench.contenders.lane import Watched, free_port
from tests.bench.nexmark.bids import topic
from tests.bench.nexmark.discard import DiscardSink
from tests.bench.nexmark.oracle import sums
from tests.bench.nexmark.queries import QUERIES, Query, answer, projection


class Timed(Watched):
    """Also notes when the warm-up was over."""

    def __init__(self, sink: Sink, records: int) -> None:
        super().__init__(sink, records)
        self.warm: tuple[int, float] | None = None

    def write(self, version: int, write: Write) -> None:
        super().write(version, write)
        consumed = sum(self.consumed.values())
        if self.warm is None and consumed >= WARM_UP:
            self.warm = consumed, time.perf_counter()


async def run(records: int, name: str, folder: Path, until_ms: int) -> Finish:
    """Fold the whole topic once and make the answer."""
    settings, query = Settings.read(), QUERIES[name]()
    folded = projection(name, query, topic(records))
    kept = DiscardSink(folded.model) if query.answer is None else None
    sink = Timed(kept or open_sink(folded.store, folded.model, settings), records)
    app = await build_app(
        f"bench-nexmark-{name}",
        settings.kafka,
        [lane(folded, _wiring(settings, sink, folder))],
        free_port(),
        folder,
    )
    loop = asyncio.get_running_loop()
    sink.done = lambda: loop.call_soon_threadsafe(app.end)
    await app.start()
    error = await app.ended
    ended = time.perf_counter()
    await app.stop()
    if error is not None:
        raise error
    if sink.took is None:
        raise RuntimeError("the lane ended before the topic did")
    merging = Stopwatch()
    merging.start()
    found = dict(kept.sums) if kept else _answer(folded, query, settings, until_ms)
    merge_s, merge_cpu_s = merging.stop()
    seconds, cpu_s = sink.took[0] + merge_s, sink.took[1] + merge_cpu_s
    steady_events = records - sink.warm[0] if sink.warm else 0
    positions = sink.positions(1).values()
    return Finish(
        seconds,
        cpu_s,
        sink.consumed,
        steady_events=steady_events or None,
        steady_s=ended - sink.warm[1] + merge_s if sink.warm and steady_events else None,
        dropped=sum(position.counts.get(Fate.LATE, 0) for position in positions),
        results=found["rows"],
        sums=found,
    )


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


def _answer(folded: Projection, query: Query, settings: Settings, until_ms: int) -> dict[str, int]:
    sink = open_sink(folded.store, folded.model, settings)
    rows = pl.concat(sink.rows(sink.live_version(), query.table.name))
    sink.close()
    return sums(answer(query, rows, until_ms))


def main(records: int, name: str, until_ms: int) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, name, Path(folder), until_ms)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
