"""Latencies of an engine at 25, 50 and 75 % of its own maximum, open loop.

Two figures. `visible`: from the intended time of a view to the moment a reader finds it counted
in the store; every view of one campaign is such a sample (the k-th view of a window is visible
when its count is k). `ysb`: the benchmark's own, `time_updated` less the end of the window, for
every campaign and whole window. Both start where the event was due, not where it was sent. What
the store holds in the end is compared with what was sent.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from subprocess import PIPE, Popen
from typing import Any, Self

import msgspec
import numpy as np
import polars as pl

from infra.local.home import CHECKOUT
from sinks.drivers.redis import connect, keys
from streams.runtime import kafka
from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.store import drop_read_model, drop_topics
from tests.bench.turns import WrongTotals
from tests.bench.ysb.check import HEADRACE, compare, model, stored
from tests.bench.ysb.engines import TITLES, Engines, running
from tests.bench.ysb.events import CAMPAIGN_IDS, CAMPAIGN_OF, PARTITIONS, WINDOW_MS, topic
from tests.bench.ysb.load import fresh
from tests.bench.ysb.pace import Phase, expected

NAME = "live"
LOADS = (0.25, 0.5, 0.75)
SECONDS = 20.0
GENERATOR_LATE_MS = 100.0
"""The original's bound: later, the generator itself is what is measured."""
WARM_UP_S = 8.0
LEAD_MS = 2_000
PAUSE_MS = 3_000
POLL_S = 0.005
READY_S = 90.0
DRAIN_S = 30.0
SETTLE_S = 5.0
SAMPLED = 0
"""The campaign whose views are followed."""
PERCENTILES = (0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9, 100)


class Probe:
    """Follows the counts of one campaign by asking the store, as a reader would."""

    def __init__(self, settings: Settings, engine: str) -> None:
        self._client = connect(settings.redis.url.get_secret_value())
        self._engine = engine
        self._due: defaultdict[int, list[int]] = defaultdict(list)
        self._seen: defaultdict[int, int] = defaultdict(int)
        self.samples: list[tuple[int, float]] = []
        """Intended time and latency, both in milliseconds."""

    def follow(self, phase: Phase) -> None:
        """Expect the views of a phase, after all that was expected before."""
        ads, times = phase.views()
        for at in times[CAMPAIGN_OF[ads] == SAMPLED].tolist():
            self._due[at // WINDOW_MS * WINDOW_MS].append(at)

    @property
    def open(self) -> list[int]:
        """Windows that lack a view, the oldest first."""
        return sorted(w for w, due in self._due.items() if self._seen[w] < len(due))

    def look(self) -> None:
        """Ask once for all windows that have begun and are not complete."""
        now_ms = time.time() * 1_000
        windows = [start for start in self.open if start <= now_ms]
        with self._client.pipeline(transaction=False) as pipe:
            for start in windows:
                for key, field in self._places(start):
                    pipe.hget(key, field)
            found = iter(pipe.execute() if windows else [])
        at_ms = time.time() * 1_000
        for start in windows:
            count = sum(
                int(value.partition(b",")[0])
                for _ in self._places(start)
                if (value := next(found)) is not None
            )
            told = self._due[start][self._seen[start] : count]
            self.samples += [(due, at_ms - due) for due in told]
            self._seen[start] = max(count, self._seen[start])

    def until(self, end_ms: int, drain_s: float) -> bool:
        """Look until all is visible; at most so long after `end_ms`. Whether all is."""
        while self.open and time.time() < end_ms / 1_000 + drain_s:
            self.look()
            time.sleep(POLL_S)
        return not self.open

    def close(self) -> None:
        self._client.close()

    def _places(self, start_ms: int) -> list[tuple[str, str]]:
        """Keys and fields whose counts add up to that of the campaign in a window."""
        campaign, prefix = CAMPAIGN_IDS[SAMPLED], model(self._engine, "json")
        if self._engine == HEADRACE:
            return [
                (f"{keys.prefix(prefix, 1, p)}t:windows:{start_ms}", f'"{campaign}"')
                for p in range(PARTITIONS)
            ]
        key = f"{{{prefix}}}:{start_ms}"
        if self._engine == "flink":
            return [(key, campaign)]
        return [(key, f"{campaign}/{p}") for p in range(PARTITIONS)]


def measure(
    settings: Settings, engines: Engines, engine: str, maximum: float, seconds: float
) -> dict[str, Any]:
    """One engine, started once, at each load; raises `WrongTotals` where a count is wrong."""
    live = topic("json", NAME)
    fresh(settings, live)
    drop_read_model(settings, model(engine, "json"))
    probe = Probe(settings, engine)
    try:
        with running(engines.live(engine, "json", NAME)), Generator() as generator:
            warm = Phase(_soon(), max(1, int(maximum * LOADS[0])), WARM_UP_S)
            _, ready = generator.paced(probe, [warm], READY_S)
            if not ready:
                raise TimeoutError(f"{engine} did not count {warm.events} events")
            phases = _phases(warm.events, maximum, seconds)
            late, drained = generator.paced(probe, phases, DRAIN_S)
            rows = _settled(settings, engine, expected([warm, *phases]) if drained else None)
        loads = [
            _figures(load, phase, probe, rows, behind_ms)
            for load, phase, behind_ms in zip(LOADS, phases, late, strict=True)
        ]
    finally:
        probe.close()
        _leave(settings, engine)
    return {
        "title": TITLES[engine],
        "maximum_events_per_s": round(maximum),
        "counts": "equal to the generator's" if drained else f"behind by more than {DRAIN_S:g} s",
        "loads": loads,
    }


def _settled(settings: Settings, engine: str, wanted: pl.DataFrame | None) -> pl.DataFrame:
    """What the store holds, once it is what is wanted: other campaigns than the probe's may be
    written a moment later. Raises `WrongTotals` if it does not come to be.
    """
    until_s = time.monotonic() + SETTLE_S
    while True:
        rows = stored(settings, engine, "json")
        try:
            if wanted is not None:
                compare(engine, rows, wanted)
        except WrongTotals:
            if time.monotonic() > until_s:
                raise
            time.sleep(POLL_S)
        else:
            return rows


def _phases(first: int, maximum: float, seconds: float) -> list[Phase]:
    """All loads one after the other, with a pause between."""
    phases: list[Phase] = []
    start_ms = _soon()
    for load in LOADS:
        phases.append(Phase(start_ms, max(1, int(maximum * load)), seconds, first))
        first += phases[-1].events
        start_ms = phases[-1].end_ms + PAUSE_MS
    return phases


def _soon() -> int:
    return int(time.time() * 1_000) + LEAD_MS


class Generator:
    """`pace` as a process of its own; it is ready when this is made."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.bench.ysb.pace", NAME]
        self._process = Popen(command, cwd=CHECKOUT, stdin=PIPE, stdout=PIPE, text=True)
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def paced(
        self, probe: Probe, phases: Sequence[Phase], drain_s: float
    ) -> tuple[list[float], bool]:
        """Generate, and look meanwhile; by how much the generator was late in each phase, and
        whether all came to be visible.
        """
        if self._process.stdin is None:
            raise RuntimeError("the generator cannot be told anything")
        self._process.stdin.write(msgspec.json.encode(phases).decode() + "\n")
        self._process.stdin.flush()
        for phase in phases:
            probe.follow(phase)
        drained = probe.until(phases[-1].end_ms, drain_s)
        late_ms: list[float] = json.loads(self._answer())
        return late_ms, drained

    def _answer(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the generator ended with {self._process.wait()}")
        return line


def _figures(
    load: float, phase: Phase, probe: Probe, rows: pl.DataFrame, behind_ms: float
) -> dict[str, Any]:
    visible = [ms for due, ms in probe.samples if phase.start_ms <= due < phase.end_ms]
    whole = pl.col("start_ms").is_between(phase.start_ms, phase.end_ms - WINDOW_MS)
    ended = rows.filter(whole).select(pl.col("updated_ms") - pl.col("start_ms") - WINDOW_MS)
    return {
        "load": load,
        "events_per_s": phase.rate,
        "generator_late_ms": behind_ms,
        "generator_kept_up": behind_ms <= GENERATOR_LATE_MS,
        "visible_ms": cdf(visible),
        "ysb_ms": cdf(ended.to_series().to_list()),
    }


def cdf(values: Sequence[float]) -> dict[str, Any]:
    """Points of the distribution: the value by the share (in percent) that is not above it."""
    if not values:
        return {"samples": 0}
    points = np.percentile(values, PERCENTILES, method="higher").round(2).tolist()
    named = dict(zip((f"p{p}" for p in PERCENTILES), points, strict=True))
    assert all(low <= high for low, high in pairwise(points))
    return {"samples": len(values), **named}


def _leave(settings: Settings, engine: str) -> None:
    """Delete the topic, what the engine stored, and the internal topics of a killed one."""
    drop_topics(settings, [topic("json", NAME)])
    drop_read_model(settings, model(engine, "json"))
    admin = kafka.admin(settings.kafka)
    inner = f"bench.ysb-{engine}-"
    own = [name for name in admin.list_topics(timeout=10).topics if name.startswith(inner)]
    for future in (admin.delete_topics(own) if own else {}).values():
        future.result(10)


def table(result: dict[str, Any]) -> None:
    """Print p50, p99 of both figures by engine and load."""
    rows = [
        (
            f"{name} {load['load']:.0%}",
            load["events_per_s"],
            *(load[figure].get(p) for figure in ("visible_ms", "ysb_ms") for p in ("p50", "p99")),
            load["generator_late_ms"],
        )
        for name, one in result.items()
        if "loads" in one
        for load in one["loads"]
    ]
    columns = ("ms", "events/s", "visible p50", "p99", "ysb p50", "p99", "generator late")
    report.table("latency from the intended time, JSON", columns, rows)
