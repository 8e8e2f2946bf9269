"""The paced mode: JSON events at a rate, at their intended times, whatever becomes of them.

Usage: pace NAME. Says `ready`, then reads lines of phases (JSON) and answers each with a line: by
how many milliseconds the generator itself was late at most, by phase. Event n of a phase is due at
`start_ms + n / rate` and says so in its event time; every 10 ms what is due goes out. What an event
is depends on its number alone, which goes on through all phases.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import polars as pl

from streams.runtime.settings import Settings
from tests.bench.ysb.events import (
    AD_IDS,
    AD_TYPES,
    ADS,
    EVENT_TYPES,
    IP,
    SEED,
    VIEW,
    Ints,
    counted,
    topic,
    uuids,
)
from tests.bench.ysb.load import Loader

POOL = 100_000
TICK_S = 0.01
LINGER_MS = 2
TAIL = f'", "ip_address": "{IP}"}}'.encode()
_PEOPLE = 100
_STREAM = 1 << 40
"""Far from any chunk of the catch-up mode."""


@dataclass(frozen=True)
class Phase:
    """`rate` events a second for so long; `first` is the number of its first event."""

    start_ms: int
    rate: int
    seconds: float
    first: int = 0

    @property
    def events(self) -> int:
        return int(self.rate * self.seconds)

    @property
    def end_ms(self) -> int:
        return self.start_ms + int(self.seconds * 1_000)

    def times_ms(self) -> Ints:
        """Event times, which are the intended times, in order."""
        number: Ints = np.arange(self.events, dtype=np.int64)
        return self.start_ms + number * 1_000 // self.rate

    def views(self) -> tuple[Ints, Ints]:
        """Ads and event times of the views."""
        ads, kinds, _ = _drawn()
        at = (self.first + np.arange(self.events)) % POOL
        view = kinds[at] == EVENT_TYPES.index(VIEW)
        return ads[at][view], self.times_ms()[view]


def expected(phases: Sequence[Phase]) -> pl.DataFrame:
    """Views by campaign and window of all phases."""
    parts = [counted(*phase.views()) for phase in phases]
    return pl.concat(parts).group_by("campaign", "start_ms").agg(pl.col("seen").sum())


def heads() -> list[bytes]:
    """What the events of the pool are up to the event time."""
    ads, kinds, draw = _drawn()
    people = uuids(np.frombuffer(draw.bytes(32 * _PEOPLE), np.uint8).reshape(2 * _PEOPLE, 16))
    users, pages = draw.integers(_PEOPLE, size=POOL), draw.integers(_PEOPLE, size=POOL)
    types = draw.integers(len(AD_TYPES), size=POOL)
    return [
        f'{{"user_id": "{people[user]}", "page_id": "{people[_PEOPLE + page]}", "ad_id": '
        f'"{AD_IDS[ad]}", "ad_type": "{AD_TYPES[kind]}", "event_type": "{EVENT_TYPES[what]}", '
        f'"event_time": "'.encode()
        for user, page, ad, kind, what in zip(users, pages, ads, types, kinds, strict=True)
    ]


def _send(loader: Loader, pool: list[bytes], phase: Phase) -> float:
    times, sent, late_ms = phase.times_ms(), 0, 0.0
    stops = np.searchsorted(times, np.arange(phase.start_ms, phase.end_ms + 1), side="right")
    while sent < phase.events:
        now_ms = time.time() * 1_000
        reached = min(int(now_ms) - phase.start_ms, len(stops) - 1)
        due = int(stops[reached]) if reached >= 0 else 0
        if due > sent:
            late_ms = max(late_ms, now_ms - float(times[sent]))
            loader.send(_values(pool, phase, times, sent, due))
            sent = due
        time.sleep(TICK_S)
    loader.flush()
    return round(late_ms, 1)


def _values(pool: list[bytes], phase: Phase, times: Ints, sent: int, due: int) -> list[bytes]:
    values: list[bytes] = []
    stamps, starts = np.unique(times[sent:due], return_index=True)
    for stamp, first, stop in zip(
        stamps.tolist(), starts.tolist(), [*starts[1:].tolist(), due - sent], strict=True
    ):
        at = (phase.first + sent + first) % POOL
        rest = b"%d%s" % (stamp, TAIL)
        for left in range(stop - first, 0, -POOL):
            values += [head + rest for head in pool[at : at + min(left, POOL)]]
    return values


def _drawn() -> tuple[Ints, Ints, np.random.Generator]:
    draw = np.random.default_rng([SEED, _STREAM])
    return draw.integers(ADS, size=POOL), draw.integers(len(EVENT_TYPES), size=POOL), draw


def main(name: str) -> None:
    loader = Loader(Settings.read(), topic("json", name), LINGER_MS)
    pool = heads()
    pool += pool  # a slice never has to wrap
    print("ready", flush=True)
    for line in sys.stdin:
        phases = msgspec.json.decode(line, type=list[Phase])
        print(json.dumps([_send(loader, pool, phase) for phase in phases]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
