"""Contenders take turns, so that a slow minute of the machine hits all of them.

A contender is a program that prints a `Finish` as its last line. What it counted is checked after
every run: an engine that drops records looks fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec
import psutil

from tests.bench import report
from tests.bench.measure import TIMEOUT_S, Run, run


class WrongTotals(AssertionError):
    """A contender did not count what the generator made."""


@dataclass(frozen=True)
class Contender:
    """One thing to measure.

    `prepare` runs before every run, outside the clock; `check` gets every run and raises
    `WrongTotals`. `missing` says why it cannot run on this machine; it is then left out, loudly.
    """

    title: str
    command: Sequence[str] = ()
    prepare: Callable[[], object] = lambda: None
    check: Callable[[Run], object] = lambda _: None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = TIMEOUT_S
    missing: str = ""


def take_turns(
    contenders: Mapping[str, Contender], runs: int, broker: psutil.Process | None
) -> dict[str, list[Run]]:
    """All contenders once, then again, `runs` times; their runs by name."""
    able = {name: one for name, one in contenders.items() if not one.missing}
    for one in contenders.values():
        if one.missing:
            report.console.print(f"  [yellow]not measured:[/] {one.title}: {one.missing}")
    measured: dict[str, list[Run]] = {name: [] for name in able}
    for turn in range(runs):
        for name, contender in able.items():
            measured[name].append(once(contender, broker))
            report.console.print(f"  {turn + 1}/{runs} {line(contender, measured[name][-1])}")
    return measured


def once(contender: Contender, broker: psutil.Process | None = None) -> Run:
    """Prepare, run and check one contender."""
    contender.prepare()
    done = run(contender.command, broker=broker, env=contender.env, timeout_s=contender.timeout_s)
    contender.check(done)
    return done


def line(contender: Contender, done: Run) -> str:
    """One run for the console."""
    return (
        f"{contender.title:<44} {done.rate:>12,.0f}/s  "
        f"load {done.load_1min:.1f}, others {done.others_cpu_s:.1f} s"
    )


def figures(title: str, runs: Sequence[Run]) -> dict[str, Any]:
    """Medians over the runs, and all runs."""

    def middle(figure: Callable[[Run], float | None], digits: int | None = None) -> float | None:
        found = [value for one in runs if (value := figure(one)) is not None]
        return round(median(found), digits) if found else None

    def per_million(seconds: Callable[[Run], float | None]) -> float | None:
        def figure(one: Run) -> float | None:
            value = seconds(one)
            return None if value is None else value / one.events * 1e6

        return middle(figure, 3)

    return {
        "title": title,
        "events": runs[0].events,
        "events_per_s": middle(lambda one: one.rate),
        "steady_events_per_s": middle(lambda one: one.steady_rate),
        "cpu_s_per_million": per_million(lambda one: one.finish.cpu_s),
        "process_cpu_s_per_million": per_million(lambda one: one.process_cpu_s),
        "broker_cpu_s_per_million": per_million(lambda one: one.broker_cpu_s),
        "rss_peak_mib": max(one.finish.rss_peak_mib for one in runs),
        "dropped": max(one.finish.dropped for one in runs),
        "runs": [
            {"events_per_s": round(one.rate), **msgspec.to_builtins(one, str_keys=True)}
            for one in runs
        ],
    }


def ratios(
    ours: Sequence[Run], theirs: Sequence[Run], figure: Callable[[Run], float | None]
) -> dict[str, Any] | None:
    """A figure of ours to theirs in the same turn: the median, and turn by turn. None where a run
    has no such figure.
    """
    pairs = [(figure(our), figure(their)) for our, their in zip(ours, theirs, strict=True)]
    found = [our / their for our, their in pairs if our is not None and their is not None]
    if not found or len(found) < len(pairs):
        return None
    return {"median": round(median(found), 2), "by_turn": [round(one, 2) for one in found]}
