"""`bench lane`: the same rule on plain Faust and on the lane, and how near the lane is to the
ceiling of its client library.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import msgspec

from streams.runtime.settings import Settings
from tests.bench import clicks, report
from tests.bench.measure import Run, broker_process, run
from tests.bench.store import drop_read_model

RECORDS = 2_000_000
FAUST_RECORDS = 100_000
"""Plain Faust gets this many of the same records: as long a run as the lane's with millions."""


class WrongTotals(AssertionError):
    """A contender did not count what the generator made."""


@dataclass(frozen=True)
class Contender:
    """One thing to measure: its program, and what to do before each run."""

    title: str
    module: str
    args: tuple[object, ...]
    prepare: Callable[[], object] = lambda: None


def contenders(settings: Settings, records: int) -> dict[str, Contender]:
    """Everything that takes turns on a topic of `records` clicks."""
    take = min(FAUST_RECORDS, records)
    return {
        "faust": Contender("plain Faust", "plain_faust", (records, take)),
        "lane": Contender(
            "lane → Valkey, all guarantees",
            "lane",
            (records, "redis"),
            lambda: drop_read_model(settings, "bench-lane-redis"),
        ),
        "memory": Contender("lane → memory sink", "lane", (records, "memory")),
        "raw": Contender("consume() alone", "raw", (records,)),
    }


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result."""
    settings, records = Settings.read(), records or RECORDS
    report.console.print(f"topic of {records:,} clicks …")
    clicks.ensure(settings, records)
    chosen = contenders(settings, records)
    measured = _take_turns(settings, chosen, records, runs)
    result = _summary(chosen, measured, records)
    _print(chosen, result)
    report.save("lane", result)
    return result


def _take_turns(
    settings: Settings, chosen: dict[str, Contender], records: int, runs: int
) -> dict[str, list[Run]]:
    broker = broker_process(settings)
    measured: dict[str, list[Run]] = {name: [] for name in chosen}
    for turn in range(runs):
        for name, contender in chosen.items():
            contender.prepare()
            one = run(contender.module, *contender.args, broker=broker)
            check(contender.title, one, records)
            measured[name].append(one)
            report.console.print(
                f"  {turn + 1}/{runs} {contender.title:<30} {one.rate:>12,.0f}/s  "
                f"load {one.load_1min:.1f}, others {one.others_cpu_s:.1f} s"
            )
    return measured


def check(title: str, one: Run, records: int) -> None:
    """Raise `WrongTotals` unless a run counted exactly what there was in what it consumed."""
    finish = one.finish
    if finish.count is None:
        return
    wanted = clicks.totals(records, finish.consumed)
    found = clicks.Totals(finish.count, finish.cost_micros or 0)
    if found != wanted:
        raise WrongTotals(f"{title}: {found}, the generator made {wanted}")


def _summary(
    chosen: dict[str, Contender], measured: dict[str, list[Run]], records: int
) -> dict[str, Any]:
    figures = {name: _figures(chosen[name].title, runs) for name, runs in measured.items()}
    rate = {name: one["events_per_s"] for name, one in figures.items()}
    cpu = {name: one["cpu_s_per_million"] for name, one in figures.items()}
    turns = zip(measured["lane"], measured["faust"], measured["raw"], strict=True)
    pairs = [(lane.rate / faust.rate, lane.rate / raw.rate) for lane, faust, raw in turns]
    return {
        "records": records,
        "totals": "equal to the generator's in every run",
        "lane_to_faust": round(rate["lane"] / rate["faust"], 1),
        "lane_to_faust_by_turn": [round(faust, 1) for faust, _ in pairs],
        "faust_to_lane_cpu": round(cpu["faust"] / cpu["lane"], 1),
        "share_of_raw": round(median(raw for _, raw in pairs), 3),
        "contenders": figures,
    }


def _figures(title: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Medians, and all runs."""

    def per_million(seconds: Callable[[Run], float | None]) -> float | None:
        found = [s for one in runs if (s := seconds(one)) is not None]
        return round(median(found) / runs[0].events * 1e6, 3) if found else None

    return {
        "title": title,
        "events": runs[0].events,
        "events_per_s": round(median(one.rate for one in runs)),
        "cpu_s_per_million": per_million(lambda one: one.finish.cpu_s),
        "process_cpu_s_per_million": per_million(lambda one: one.process_cpu_s),
        "broker_cpu_s_per_million": per_million(lambda one: one.broker_cpu_s),
        "rss_peak_mib": max(one.finish.rss_peak_mib for one in runs),
        "runs": [
            {"events_per_s": round(one.rate), **msgspec.to_builtins(one, str_keys=True)}
            for one in runs
        ],
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
