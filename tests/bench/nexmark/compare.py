"""Takes turns with every query, checks every run against the oracle, writes `nexmark.json`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import psutil
from rich.progress import MofNCompleteColumn, Progress, TimeElapsedColumn

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.contenders.finish import WARM_UP
from tests.bench.measure import Run, broker_process
from tests.bench.nexmark import bids, oracle, peers
from tests.bench.nexmark.notes import NOTES
from tests.bench.peers import java
from tests.bench.store import drop_read_model
from tests.bench.turns import Contender, WrongTotals, figures, line, once, ratios

RECORDS = 3_000_000
QUERIES = tuple(oracle.QUERIES)
ENGINES = {"headrace": "Headrace", "flink": "Flink SQL", "streams": "Kafka Streams"}
PARALLELISMS = (1, 2)
VARIANTS = {"q7": "q7-top"}
"""Queries that Flink gets a second time, written as suits it."""

Measured = dict[str, list[Run]]


def bench(runs: int, records: int | None, only: Collection[str] = ()) -> dict[str, Any]:
    """Run the queries, or `only` some; print tables, write the result file; returns the result."""
    if unknown := set(only) - set(QUERIES):
        raise ValueError(f"no query {', '.join(sorted(unknown))}; there are {', '.join(QUERIES)}")
    settings, records = Settings.read(), records or RECORDS
    report.console.print(f"topic of {records:,} bids …")
    bids.ensure(settings, records)
    made = bids.numbers(records)
    broker = broker_process(settings)
    found: dict[str, Any] = {}
    with TemporaryDirectory() as folder, _progress() as progress:
        side = peers.write_side(Path(folder) / "side.csv")
        task = progress.add_task("nexmark", total=len(only or QUERIES))
        for query in only or QUERIES:
            progress.update(task, description=f"nexmark {query}")
            chosen = contenders(settings, query, made, side)
            found[query] = _summary(chosen, take_turns(chosen, runs, broker))
            progress.advance(task)
    result = _result(records, made, found)
    show(result)
    report.save("nexmark", result)
    return result


def _progress() -> Progress:
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=report.console, transient=True)


def contenders(
    settings: Settings, query: str, made: pl.DataFrame, side: Path
) -> dict[str, Contender]:
    """Everything that takes turns with a query over the bids `made`: Headrace, Flink at each
    parallelism, Kafka Streams.
    """
    records, until_ms = made.height, oracle.closed_ms(made)
    whole = oracle.expected(query, made)
    closed = oracle.expected(query, made, until_ms)
    missing = java.missing()
    module = "tests.bench.nexmark.contender"
    chosen = {
        "headrace": Contender(
            f"{query} Headrace",
            (sys.executable, "-m", module, str(records), query, str(until_ms)),
            partial(drop_read_model, settings, f"bench-nexmark-{query}"),
            partial(check, f"{query} Headrace", closed, records),
        )
    }

    def peer(title: str, command: Sequence[str]) -> Contender:
        title = f"{query} {title}"
        return Contender(
            title, command, check=partial(check, title, whole, records), missing=missing
        )

    def flink(name: str, parallelism: int) -> Sequence[str]:
        return () if missing else peers.flink(settings, records, name, parallelism, side)

    for parallelism in PARALLELISMS:
        title = f"Flink SQL, parallelism {parallelism}"
        chosen[f"flink-{parallelism}"] = peer(title, flink(query, parallelism))
    if query in VARIANTS:
        chosen["flink-variant"] = peer("Flink SQL, as suits it", flink(VARIANTS[query], 1))
    started = () if missing else peers.streams(settings, records, query, side)
    chosen["streams"] = peer("Kafka Streams", started)
    return chosen


def check(title: str, wanted: oracle.Sums, records: int, one: Run) -> None:
    """Raise `WrongTotals` unless a run read every bid, dropped none and gave the right answer."""
    finish = one.finish
    if (one.events, finish.dropped) != (records, 0):
        raise WrongTotals(f"{title}: {one.events:,} of {records:,} bids, {finish.dropped} dropped")
    if not oracle.agrees(finish.sums, wanted):
        raise WrongTotals(f"{title}: {dict(finish.sums)}, the oracle says {dict(wanted)}")


def take_turns(
    chosen: Mapping[str, Contender], runs: int, broker: psutil.Process | None
) -> Measured:
    """All contenders once; of Flink's parallelisms the faster one goes on for the other turns."""
    able = {name: one for name, one in chosen.items() if not one.missing}
    for one in chosen.values():
        if one.missing:
            report.console.print(f"  [yellow]not measured:[/] {one.title}: {one.missing}")
    measured: Measured = {name: [] for name in able}
    for turn in range(runs):
        for name in list(able):
            measured[name].append(once(able[name], broker))
            report.console.print(f"  {turn + 1}/{runs} {line(able[name], measured[name][-1])}")
        if turn == 0:
            able.pop(_slower(measured), None)
    return measured


def _slower(measured: Measured) -> str:
    """Of Flink's two parallelisms the one that loses by its first run, steady if that is known;
    empty where Flink is not measured.
    """
    first = {name: measured[name][0] for name in _flinks() if name in measured}
    return min(first, key=lambda name: first[name].steady_rate or first[name].rate, default="")


def _flinks() -> Iterator[str]:
    return (f"flink-{parallelism}" for parallelism in PARALLELISMS)


def _summary(chosen: Mapping[str, Contender], measured: Measured) -> dict[str, Any]:
    slower = _slower(measured)
    found: dict[str, Any] = {}
    for name, runs in measured.items():
        key = "flink-slower" if name == slower else name
        found["flink" if key in _flinks() else key] = figures(chosen[name].title, runs)
    ours = measured["headrace"]
    return {
        "headrace_to": {
            "flink" if name in _flinks() else name: {
                "cold": ratios(ours, runs, lambda one: one.rate),
                "steady": ratios(ours, runs, lambda one: one.steady_rate),
            }
            for name, runs in measured.items()
            if name not in ("headrace", slower)
        },
        "contenders": found,
    }


def _result(records: int, made: pl.DataFrame, found: dict[str, Any]) -> dict[str, Any]:
    rate = bids.events_a_s(records)
    span_s = int(made["date_time"].max() - bids.START_MS) / 1_000  # type: ignore[operator]
    return {
        "records": records,
        "event_time": {"events_a_s": rate, "span_s": round(span_s, 1)},
        "answers": "equal to the oracle's in every run",
        "steady": (
            f"after the first {WARM_UP:,} bids"
            if records > WARM_UP
            else f"not measured: it begins after {WARM_UP:,} bids"
        ),
        "settings": {
            "headrace": "one process, as a worker runs it; Valkey, or the blackhole for q0 and q13",
            "flink": {**peers.FLINK, "heap": peers.HEAP, "jvm": peers.JVM},
            "streams": {
                **peers.STREAMS,
                **{"stores": "memory", "heap": peers.HEAP, "jvm": peers.JVM},
            },
        },
        "versions": {} if java.missing() else java.versions(),
        "notes": NOTES,
        "queries": found,
        "where_a_peer_wins": list(wins(found)),
    }


def wins(found: Mapping[str, Any]) -> Iterator[str]:
    """A line for each query and figure in which a peer is ahead of Headrace."""
    words = {
        "events_per_s": "events/s from cold",
        "steady_events_per_s": "events/s steady",
        "cpu_s_per_million": "CPU seconds a million",
    }
    for one in found.values():
        ours = one["contenders"]["headrace"]
        for name, theirs in one["contenders"].items():
            for figure, unit in words.items():
                mine, other = ours[figure], theirs[figure]
                if name == "headrace" or mine is None or other is None:
                    continue
                less = figure == "cpu_s_per_million"
                if other < mine if less else other > mine:
                    yield f"{theirs['title']}: {other:,.2f} {unit}, Headrace {mine:,.2f}"


def show(result: Mapping[str, Any]) -> None:
    """Print a table a figure: queries as rows, engines as columns."""
    for figure, title in (
        ("events_per_s", "events/s, from the first record"),
        ("steady_events_per_s", f"events/s, steady ({result['steady']})"),
        ("cpu_s_per_million", "CPU seconds a million events, engine"),
        ("broker_cpu_s_per_million", "CPU seconds a million events, broker"),
    ):
        rows = [
            (query, *(one["contenders"].get(name, {}).get(figure) for name in ENGINES))
            for query, one in result["queries"].items()
        ]
        report.table(title, ("query", *ENGINES.values()), rows)
    for won in result["where_a_peer_wins"]:
        report.console.print(f"[yellow]a peer is ahead:[/] {won}")
