"""Logs of lines and samples for tests, and a recount in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from schemas.telemetry.events import LogLine, Sampled
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness
from streams.telemetry import SYSTEM

T = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
HOT, COLD, ROLLUPS, SAMPLES, METRICS, ALERTS = SYSTEM.projections
LEVELS = ("DEBUG", "INFO", "WARN", "ERROR")


def line(name: str = "l", at: int = 0, **fields: Any) -> LogLine:
    """A line `at` milliseconds after `T`."""
    made = {
        "stream": "pay/1", "service": "pay", "level": "INFO", "nanos": 0, "body": "hello",
        "trace_id": None, "span_id": None, "labels": "{}", "weight": 1,
    }  # fmt: skip
    return LogLine(line_id=name, event_time=T + at, **{**made, **fields})


def sample(series: str = "s", at: int = 0, value: float | None = 1.0) -> Sampled:
    """A sample `at` milliseconds after `T`."""
    return Sampled(series_id=series, event_time=T + at, value=value)


def memory(model: ReadModel) -> MemorySink:
    """An empty store."""
    return MemorySink(model, MemoryStore())


def run(projection: Projection, *rows: Any, cuts: Iterable[int] = ()) -> Harness:
    """The projection over a log of one partition."""
    harness = Harness(projection, memory(projection.model))
    harness.send(*rows, append_ms=T + 400 * DAY)
    harness.run(cuts)
    return harness


def an_hour(lines: int = 2_000, seed: int = 1) -> list[LogLine]:
    """Lines of one hour in the order of time, of three services."""
    chance = random.Random(seed)
    return [
        line(
            f"l{n}",
            n * HOUR // lines,
            service=chance.choice(("pay", "cart", "edge")),
            level=chance.choice(LEVELS),
            weight=chance.choice((1, 1, 10)),
            body=f"request {n} took {chance.randrange(999)} ms",
        )
        for n in range(lines)
    ]


def shuffled(rows: Sequence[Any], by_ms: int, seed: int = 2) -> list[Any]:
    """The rows as they would arrive when each is delayed or early by up to so much."""
    chance = random.Random(seed)
    return sorted(rows, key=lambda row: row.event_time + chance.randint(-by_ms, by_ms))


def recount(lines: Iterable[LogLine], size_ms: int) -> dict[tuple[int, str, str], tuple[int, int]]:
    """Start, service and level → distinct lines, and what they stand for."""
    distinct = {one.line_id: one for one in lines}.values()
    count: Counter[tuple[int, str, str]] = Counter()
    weight: Counter[tuple[int, str, str]] = Counter()
    for one in distinct:
        key = (one.event_time // size_ms * size_ms, one.service, one.level)
        count[key] += 1
        weight[key] += one.weight
    return {key: (count[key], weight[key]) for key in count}


def counted(harness: Harness, table: str, start: str) -> dict[Any, tuple[int, int]]:
    """What a rollup holds, as `recount` says it."""
    rows = harness.rows(table).select(start, "service", "level", "lines", "weight")
    return {(a, b, c): (n, w) for a, b, c, n, w in rows.iter_rows()}
