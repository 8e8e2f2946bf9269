"""Catch-up: how fast each engine counts a topic that is already there, cold and steady."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

import polars as pl

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.measure import Run, broker_process
from tests.bench.peers import java
from tests.bench.store import drop_read_model
from tests.bench.turns import Contender, figures, take_turns
from tests.bench.ysb.check import HEADRACE, compare, model, stored
from tests.bench.ysb.engines import TITLES, Engines
from tests.bench.ysb.events import Variant, expected

BY_TURNS = (HEADRACE, "flink", "streams", "faust")
ONCE = ("streams-alo", "streams-repartition")
"""Other guarantees or another topology of an engine that is in `BY_TURNS` already; JSON only."""
PYTHON = (HEADRACE, "faust")


def contenders(
    settings: Settings, engines: Engines, variant: Variant, records: int, names: Iterable[str]
) -> dict[str, Contender]:
    """What takes turns on the topic of so many records."""
    wanted = expected(records)
    lacking = java.missing()

    def made(engine: str) -> Contender:
        if lacking and engine not in PYTHON:
            return Contender(TITLES[engine], missing=lacking)
        return Contender(
            TITLES[engine],
            engines.catch_up(engine, variant, records),
            lambda: drop_read_model(settings, model(engine, variant)),
            lambda one: check(settings, engine, variant, one, wanted, records),
        )

    return {name: made(name) for name in names}


def check(
    settings: Settings,
    engine: str,
    variant: Variant,
    one: Run,
    wanted: pl.DataFrame,
    records: int,
) -> None:
    """Raise `WrongTotals` unless the store holds exactly the counts of what was consumed."""
    if one.events != records:
        wanted = expected(records, one.finish.consumed)
    compare(TITLES[engine], stored(settings, engine, variant), wanted)


def measure(
    settings: Settings, engines: Engines, variant: Variant, records: int, runs: int
) -> dict[str, Any]:
    """All engines on one variant."""
    broker = broker_process(settings)
    turns = contenders(settings, engines, variant, records, BY_TURNS)
    once = contenders(settings, engines, variant, records, ONCE)
    measured = take_turns(turns, runs, broker)
    others = take_turns(once, 1, broker) if variant == "json" else {}
    found = {name: figures(TITLES[name], done) for name, done in {**measured, **others}.items()}
    return {
        "headrace_to": {
            name: _ratios(measured[HEADRACE], done)
            for name, done in {**measured, **others}.items()
            if name != HEADRACE
        },
        "engines": found,
    }


def _ratios(ours: list[Run], theirs: list[Run]) -> dict[str, Any]:
    """Events a second of Headrace to those of another, by turn, and their median."""

    def by_turn(rate: Callable[[Run], float | None]) -> list[float]:
        pairs = [(rate(a), rate(b)) for a, b in zip(ours, theirs, strict=False)]
        return [round(a / b, 2) for a, b in pairs if a and b]

    cold, steady = by_turn(lambda one: one.rate), by_turn(lambda one: one.steady_rate)
    return {
        "cold": round(median(cold), 2),
        "cold_by_turn": cold,
        "steady": round(median(steady), 2) if steady else None,
        "steady_by_turn": steady,
    }


def table(variant: Variant, records: int, result: dict[str, Any]) -> None:
    """Print it."""
    rows = [
        (
            name,
            one["events_per_s"],
            one["steady_events_per_s"],
            one["cpu_s_per_million"],
            one["broker_cpu_s_per_million"],
            one["rss_peak_mib"],
            result["headrace_to"].get(name, {}).get("cold"),
            result["headrace_to"].get(name, {}).get("steady"),
        )
        for name, one in result["engines"].items()
    ]
    columns = (
        "median",
        "events/s",
        "steady",
        "CPU s/M",
        "broker s/M",
        "peak MiB",
        "Headrace ×",
        "steady ×",
    )
    report.table(f"YSB {variant}, catch-up of {records:,} events", columns, rows)
