"""One store filled by our driver or by its client alone. Usage: sinks STORE SHAPE WAY RECORDS ROWS

WAY is `driver` (`Sink.write`: fence, position and all it promises) or `raw` (the client's best way
for the same rows, see `raw_stores`). The clock runs over the writes of frames that are made before;
what is stored is read back after it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import polars as pl

from sinks.open import open_sink
from streams.runtime.position import Position
from streams.runtime.settings import Settings
from streams.runtime.sink import Ranking, ReadModel, Table, Write
from tests.bench import shapes
from tests.bench.contenders.finish import Finish, Stopwatch, say
from tests.bench.contenders.raw_stores import RAW

NAME = "bench-sinks"
TOPIC = "bench.sinks"


class Driver:
    """Our driver, as a rebuild uses it: a version of its own, one partition."""

    def __init__(self, store: str, table: Table | Ranking, settings: Settings) -> None:
        self._table = table
        self._sink = open_sink(store, ReadModel(f"{NAME}-{table.name}", (table,)), settings)
        self._live = self._sink.live_version()
        self._version = max([self._live, *self._sink.versions()]) + 1
        self._sink.prepare(self._version)
        self._sink.load(self._version, TOPIC, 0)
        self._expected: Position | None = None
        self._offset = 0

    def write(self, rows: pl.DataFrame) -> None:
        """One fenced write; durable when it returns."""
        self._offset += rows.height
        after = Position("bench", self._offset, self._offset)
        change = shapes.change(self._table, rows)
        self._sink.write(self._version, Write(TOPIC, 0, self._expected, after, [change]))
        self._expected = after

    def stored(self) -> shapes.Stored:
        """What is found, and that the position is that of the last write."""
        if self._sink.positions(self._version) != {(TOPIC, 0): self._expected}:
            raise AssertionError("the position is not that of the last write")
        found = list(self._sink.rows(self._version, self._table.name))
        return shapes.Stored.of(self._table, pl.concat(found))

    def close(self) -> None:
        """Delete it all."""
        for version in self._sink.versions():
            if version != self._live:
                self._sink.drop(version)
        self._sink.close()


def main(store: str, shape: str, way: str, records: int, rows: int) -> None:
    settings, table = Settings.read(), shapes.SHAPES[shape]
    frames = shapes.made(shape, records, rows)
    target = Driver(store, table, settings) if way == "driver" else RAW[store](table, settings)
    watch = Stopwatch()
    watch.start()
    for frame in frames:
        target.write(frame)
    seconds, cpu_s = watch.stop()
    try:
        _check(frames, table, found := target.stored())
    finally:
        target.close()
    written = sum(frame.height for frame in frames)
    say(Finish(seconds, cpu_s, {0: written}, found.rows, found.total))


def _check(frames: Sequence[pl.DataFrame], table: Table | Ranking, found: shapes.Stored) -> None:
    wanted = shapes.wanted(table, frames)
    if found != wanted:
        raise AssertionError(f"{table.name}: {found} is stored, {wanted} was written")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
