"""`bench lane`: the same rule on plain Faust and on the lane, and how near the lane is to the
ceiling of its client library.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

from streams.runtime.settings import Settings
from tests.bench import clicks, report
from tests.bench.measure import Run, broker_process, python
from tests.bench.store import drop_read_model
from tests.bench.turns import Contender, WrongTotals, figures, take_turns

RECORDS = 2_000_000
FAUST_RECORDS = 100_000
"""Plain Faust gets this many of the same records: as long a run as the lane's with millions."""


def contenders(settings: Settings, records: int) -> dict[str, Contender]:
    """Everything that takes turns on a topic of `records` clicks."""
    take = min(FAUST_RECORDS, records)

    def counts(title: str) -> Callable[[Run], None]:
        return lambda one: check(title, one, records)

    def ours(
        title: str, module: str, *args: object, prepare: Callable[[], object] = lambda: None
    ) -> Contender:
        return Contender(title, python(module, *args), prepare, counts(title))

    return {
        "faust": ours("plain Faust", "plain_faust", records, take),
        "lane": ours(
            "lane → Valkey, all guarantees",
            "lane",
            records,
            "redis",
            prepare=lambda: drop_read_model(settings, "bench-lane-redis"),
        ),
        "memory": ours("lane → memory sink", "lane", records, "memory"),
        "raw": ours("consume() alone", "raw", records),
    }


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result."""
    settings, records = Settings.read(), records or RECORDS
    report.console.print(f"topic of {records:,} clicks …")
    clicks.ensure(settings, records)
    chosen = contenders(settings, records)
    measured = take_turns(chosen, runs, broker_process(settings))
    result = _summary(chosen, measured, records)
    _print(chosen, result)
    report.save("lane", result)
    return result


def check(title: str, one: Run, records: int) -> None:
    """Raise `WrongTotals` unless a run counted exactly what there was in what it consumed."""
    finish = one.finish
    if finish.count is None:
        return
    wanted = clicks.totals(records, finish.consumed)
    counted = clicks.Totals(finish.count, finish.cost_micros or 0)
    if counted != wanted:
        raise WrongTotals(f"{title}: {counted}, the generator made {wanted}")


def _summary(
    chosen: dict[str, Contender], measured: dict[str, list[Run]], records: int
) -> dict[str, Any]:
    found = {name: figures(chosen[name].title, runs) for name, runs in measured.items()}
    rate = {name: one["events_per_s"] for name, one in found.items()}
    cpu = {name: one["cpu_s_per_million"] for name, one in found.items()}
    turns = zip(measured["lane"], measured["faust"], measured["raw"], strict=True)
    pairs = [(lane.rate / faust.rate, lane.rate / raw.rate) for lane, faust, raw in turns]
    return {
        "records": records,
        "totals": "equal to the generator's in every run",
        "lane_to_faust": round(rate["lane"] / rate["faust"], 1),
        "lane_to_faust_by_turn": [round(faust, 1) for faust, _ in pairs],
        "faust_to_lane_cpu": round(cpu["faust"] / cpu["lane"], 1),
        "share_of_raw": round(median(raw for _, raw in pairs), 3),
        "contenders": found,
    }


def _print(chosen: dict[str, Contender], result: dict[str, Any]) -> None:
    rows = [
        (
            contender.title,
            result["contenders"][name]["events_per_s"],
            result["contenders"][name]["cpu_s_per_million"],
            result["contenders"][name]["broker_cpu_s_per_million"],
            result["contenders"][name]["rss_peak_mib"],
        )
        for name, contender in chosen.items()
    ]
    columns = ("median", "events/s", "CPU s/M", "broker CPU s/M", "peak MiB")
    report.table(f"{result['records']:,} clicks, windows of 10 s by campaign", columns, rows)
    report.console.print(
        f"lane / plain Faust: [bold]{result['lane_to_faust']}×[/] the events a second, "
        f"1/{result['faust_to_lane_cpu']} of the CPU an event   "
        f"lane / consume(): {result['share_of_raw']:.0%}"
    )
