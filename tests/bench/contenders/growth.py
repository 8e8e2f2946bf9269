"""What an event costs a state that holds many keys. Usage: growth KIND KEYS EVENTS

No broker and no store: the state alone, fed batches as large as a lane cuts them. It is filled
to its size first; then the clock runs, in the state's own calls only. KIND is `totals` (count and
sum by key in one open window, keys drawn evenly) or `ids` (every event looked up among the ids of
one horizon, a twentieth of them repeats, as many forgotten as learnt).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.window import Count, PaneWindows, Spec, Sum, tumbling
from tests.bench.clicks import START_MS
from tests.bench.contenders.finish import Finish, say

BATCH = 32_768
DAY_MS = 86_400_000
SEED = 13
ROWS_A_MS = 10
REPEAT_ONE_IN = 20


class State(Protocol):
    """A state that is being filled and fed."""

    def frames(self, events: int, *, filling: bool) -> Iterator[pl.DataFrame]:
        """Batches of so many events; while `filling`, of as many keys."""
        ...

    def take(self, rows: pl.DataFrame) -> None:
        """Fold one batch."""
        ...

    def check(self, events: int) -> int:
        """How many of the events fed were counted. Raises if a result is wrong."""
        ...


class Totals:
    """Count and sum by key in one window that stays open."""

    def __init__(self, keys: int) -> None:
        self.keys, self.draw = keys, np.random.default_rng(SEED)
        sums = {"events": Count(), "points": Sum("points")}
        self.windows: PaneWindows = tumbling(Spec(("key",), "time", sums), 400 * DAY_MS)
        self.fed = 0

    def frames(self, events: int, *, filling: bool) -> Iterator[pl.DataFrame]:
        shuffled = self.draw.permutation(self.keys) if filling else None
        for start in range(0, events, BATCH):
            height = min(BATCH, events - start)
            drawn = (
                shuffled[start : start + height]
                if shuffled is not None
                else self.draw.integers(self.keys, size=height)
            )
            yield pl.DataFrame({"key": drawn, "points": drawn % 100}).with_columns(
                *_times(np.full(height, START_MS)),
                *_places(start, height, START_MS),
            )

    def take(self, rows: pl.DataFrame) -> None:
        self.windows, update = self.windows.add(rows, START_MS)
        self.fed += rows.height
        self.largest = update.changed["events"].max()

    def check(self, events: int) -> int:
        held = self.windows.panes.scan(pl.lit(value=True))
        counted = 0 if held is None else int(held["events"].sum())
        if counted != self.fed:
            raise ValueError(f"{counted} events are counted, {self.fed} were fed")
        return events


class Ids:
    """The ids of one horizon of event time."""

    def __init__(self, keys: int) -> None:
        self.draw = np.random.default_rng(SEED)
        self.keys, self.sent = keys, 0
        self.seen = SeenIds("id", "time", ("points",), max(1, keys // ROWS_A_MS))
        self.repeats = self.told = 0

    def frames(self, events: int, *, filling: bool) -> Iterator[pl.DataFrame]:
        for start in range(0, events, BATCH):
            height = min(BATCH, events - start)
            number = np.arange(self.sent, self.sent + height)
            if not filling:
                again = number % REPEAT_ONE_IN == 0
                most = max(1, self.keys // 2 // REPEAT_ONE_IN)
                # Only an id whose number is no multiple was certainly sent.
                back = self.draw.integers(most, size=height) * REPEAT_ONE_IN + 7
                again &= back <= number
                self.repeats += int(again.sum())
                number = np.where(again, number - back, number)
            newest_ms = START_MS + self.sent // ROWS_A_MS
            self.sent += height
            yield pl.DataFrame({"id": _ids(number), "points": number % 100}).with_columns(
                *_times(START_MS + number // ROWS_A_MS), *_places(start, height, newest_ms)
            )

    def take(self, rows: pl.DataFrame) -> None:
        self.seen, verdict = self.seen.check(rows, START_MS + self.sent // ROWS_A_MS)
        self.told += int((verdict == Verdict.DUPLICATE).sum())

    def check(self, events: int) -> int:
        if self.told != self.repeats:
            raise ValueError(f"{self.told} repeats were told, {self.repeats} were sent")
        return events


def _ids(numbers: np.ndarray) -> pl.Series:
    return pl.select(pl.format("event-{}", pl.lit(pl.Series(numbers)))).to_series()


def _times(times_ms: np.ndarray) -> list[pl.Series]:
    return [pl.Series("time", times_ms).cast(pl.Datetime("ms", "UTC"))]


def _places(start: int, height: int, watermark_ms: int) -> list[pl.Series]:
    offsets = pl.Series(OFFSET, np.arange(start, start + height))
    return [offsets, pl.Series(WATERMARK, np.full(height, watermark_ms))]


KINDS = {"totals": Totals, "ids": Ids}


def main(kind: str, keys: int, events: int) -> None:
    state: State = KINDS[kind](keys)
    for rows in state.frames(keys, filling=True):
        state.take(rows)
    seconds = cpu_s = 0.0
    for rows in state.frames(events, filling=False):
        wall, cpu = time.perf_counter(), time.process_time()
        state.take(rows)
        seconds += time.perf_counter() - wall
        cpu_s += time.process_time() - cpu
    say(Finish(seconds, cpu_s, {0: events}, state.check(events)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
