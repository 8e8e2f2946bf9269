"""`bench rebuild`: how fast each read model comes out of the log, from nothing to answering."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from streams.runtime.settings import Settings
from tests.bench import report, traffic
from tests.bench.measure import Run, broker_process, python, run
from tests.bench.sinks import CASES
from tests.bench.turns import Contender, WrongTotals, figures, take_turns

CHECKED_RECORDS = 100_000
"""Records of the topic that every model is built from twice."""
RAW = "cassandra-raw"


@dataclass(frozen=True)
class Model:
    """A read model and how many records it is built from; `why` so few, `goal` in events/s."""

    store: str
    says: str
    records: int = 20_000_000
    why: str = ""
    goal: int | None = None


MODELS = {
    "clicks-windows": Model("redis", "count and cost by campaign in windows of 10 s", goal=300_000),
    "ads-windows": Model(
        "redis",
        "totals by ad and minute; repeats and too many clicks found",
        5_000_000,
        "its fold, not the store, sets the pace",
        goal=300_000,
    ),
    "leaderboard": Model(
        "redis",
        "three ranks a score, compared in the store",
        200_000,
        "60,000 ranks/s is what one Valkey thread compares",
    ),
    "clicks-clickhouse": Model("clickhouse", "every click", goal=700_000),
    "ads-events": Model(
        "clickhouse",
        "every event with its fate, of 12 columns; repeats and too many clicks found",
        5_000_000,
        "its fold, not the store, sets the pace",
    ),
    "clicks-cassandra": Model(
        "cassandra", "every click", 500_000, "its client writes under 100,000 rows/s"
    ),
    "clicks-s3": Model(
        "s3", "every click, in Parquet", 5_000_000, "objects are kept until the next build"
    ),
}


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` caps them."""
    settings = Settings.read()
    sizes = {name: min(one.records, records or one.records) for name, one in MODELS.items()}
    for name, size in sizes.items():
        traffic.ensure(settings, name, size)
        _built_twice(settings, name, min(size, CHECKED_RECORDS))
    chosen = contenders(sizes)
    measured = take_turns(chosen, runs, broker_process(settings))
    result = {
        "checked": "rows folded and applied = records, in every run; once of each model: equal "
        f"digests of two builds from other spans ({CHECKED_RECORDS:,} records at most)",
        "models": {name: _model(name, measured[name]) for name in MODELS},
        "cassandra": _share(measured),
    }
    columns = ("median", "store", "records", "events/s", "goal", "CPU s/M", "peak MiB")
    keys = ("store", "events", "events_per_s", "goal", "cpu_s_per_million", "rss_peak_mib")
    rows = [(name, *(one[key] for key in keys)) for name, one in result["models"].items()]
    report.table("rebuilds", columns, rows)
    report.console.print(
        f"Cassandra: [bold]{result['cassandra']['share']:.0%}[/] of its client alone"
    )
    report.save("rebuild", result)
    return result


def contenders(sizes: dict[str, int]) -> dict[str, Contender]:
    """A rebuild of every model; and Cassandra's client alone, to compare in the same minutes."""
    found = {
        name: Contender(
            f"{name} → {MODELS[name].store}",
            python("rebuild", name, size),
            check=_whole(name, size),
        )
        for name, size in sizes.items()
    }
    case = next(case for case in CASES if case.name == "cassandra events")
    size = min(case.records, sizes["clicks-cassandra"])
    alone = python("sinks", case.store, case.shape, "raw", size, min(case.rows, size))
    return {**found, RAW: Contender("Cassandra's client alone, the same rows", alone)}


def _whole(name: str, size: int) -> Callable[[Run], None]:
    def check(one: Run) -> None:
        """The traffic has nothing to drop."""
        if (one.events, one.finish.count) != (size, size):
            raise WrongTotals(f"{name}: {one.events} folded, {one.finish.count} applied of {size}")

    return check


def _built_twice(settings: Settings, name: str, size: int) -> None:
    traffic.ensure(settings, name, size)
    _whole(name, size)(run(python("rebuild", name, size, "check")))
    report.console.print(f"  {name}: two builds of {size:,} records are equal")


def _model(name: str, runs: list[Run]) -> dict[str, Any]:
    model = MODELS[name]
    found = figures(f"{name} → {model.store}", runs)
    return {"store": model.store, "says": model.says, "goal": model.goal, "why": model.why, **found}


def _share(measured: dict[str, list[Run]]) -> dict[str, Any]:
    turns = zip(measured["clicks-cassandra"], measured[RAW], strict=True)
    shares = [round(ours.rate / alone.rate, 2) for ours, alone in turns]
    return {
        "share": median(shares),
        "share_by_turn": shares,
        "goal": 0.8,
        "client_alone": figures("unlogged batches of 100 rows of a partition", measured[RAW]),
    }
