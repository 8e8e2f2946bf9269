"""A query on the lane, with every guarantee on. Usage: contender RECORDS QUERY UNTIL_MS

The clock is that of `tests.bench.contenders.lane`, and goes on for as long as a reader takes to
merge the partitions' rows to the query's answer. UNTIL_MS: see `oracle.closed_ms`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import polars as pl
from msgspec import structs

from sinks.open import open_sink
from streams.runtime.outcome import Fate
from streams.runtime.settings import Settings
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.contenders.lane import Watched, worked
from tests.bench.nexmark.bids import topic
from tests.bench.nexmark.discard import DiscardSink
from tests.bench.nexmark.oracle import sums
from tests.bench.nexmark.queries import QUERIES, answer, projection


async def run(records: int, name: str, until_ms: int, folder: Path) -> Finish:
    """Fold the whole topic once and make the answer."""
    settings, query = Settings.read(), QUERIES[name]()
    folded = projection(name, query, topic(records))
    store = (
        DiscardSink(folded.model)
        if query.answer is None
        else open_sink(folded.store, folded.model, settings)
    )
    sink = Watched(store, lambda stored: sum(stored.values()) >= records)
    finish = await worked(settings, folded, sink, folder)
    merging = Stopwatch()
    if isinstance(store, DiscardSink):
        found, merged_s, merged_cpu_s = dict(store.sums), 0.0, 0.0
    else:
        reader = open_sink(folded.store, folded.model, settings)
        merging.start()
        rows = pl.concat(reader.rows(reader.live_version(), query.table.name))
        found = sums(answer(query, rows, until_ms))
        merged_s, merged_cpu_s = merging.stop()
    positions = sink.positions(1).values()
    return structs.replace(
        finish,
        seconds=finish.seconds + merged_s,
        cpu_s=finish.cpu_s + merged_cpu_s,
        steady_s=None if finish.steady_s is None else finish.steady_s + merged_s,
        dropped=sum(position.counts.get(Fate.LATE, 0) for position in positions),
        results=found["rows"],
        sums=found,
    )


def main(records: int, name: str, until_ms: int) -> None:
    with TemporaryDirectory() as folder:
        say(asyncio.run(run(records, name, until_ms, Path(folder))))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
