"""The whole benchmark: catch-up of both variants, latencies, kill -9; one result file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.peers import java
from tests.bench.store import drop_read_model
from tests.bench.ysb import crash, latency, load, throughput
from tests.bench.ysb.check import HEADRACE, model
from tests.bench.ysb.engines import TITLES, Engines, published
from tests.bench.ysb.events import APART_MS, VARIANTS, Variant, expected

RECORDS = 5_000_000
LIVE = (HEADRACE, "flink", "streams")
CRASHED: Variant = "json"


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print tables, write the result file; returns the result. Fewer `records` than the
    default make the paced part shorter, too.
    """
    settings, records = Settings.read(), records or RECORDS
    with TemporaryDirectory() as folder:
        engines = Engines(settings, Path(folder))
        caught_up = {v: _catch_up(settings, engines, v, records, runs) for v in VARIANTS}
        seconds = latency.SECONDS * min(1.0, records / RECORDS)
        paced = _paced(settings, engines, caught_up["json"], max(5.0, seconds))
        crashed = _crashed(settings, engines, records)
    result = {
        "records": records,
        "events_apart_ms": APART_MS,
        "counts": "every campaign and window equal to the generator's in every run",
        "catch_up": caught_up,
        "latency": paced,
        "kill_9": crashed,
        "settings": published(),
        "versions": {} if java.missing() else java.versions(),
    }
    report.save("ysb", result)
    return result


def _catch_up(
    settings: Settings, engines: Engines, variant: Variant, records: int, runs: int
) -> dict[str, Any]:
    report.console.print(f"{variant}: {records:,} events …")
    load.ensure(settings, variant, records)
    found = throughput.measure(settings, engines, variant, records, runs)
    throughput.table(variant, records, found)
    return found


def _paced(
    settings: Settings, engines: Engines, caught_up: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Latencies of every engine that has a maximum; a wrong count ends the benchmark."""
    found: dict[str, Any] = {}
    for name in LIVE:
        one = caught_up["engines"].get(name)
        if one is None:
            continue
        report.console.print(f"  paced: {TITLES[name]} …")
        maximum = one["steady_events_per_s"] or one["events_per_s"]
        try:
            found[name] = latency.measure(settings, engines, name, maximum, seconds)
        except (TimeoutError, RuntimeError) as error:
            found[name] = {"title": TITLES[name], "not_measured": str(error)}
            report.console.print(f"  [yellow]not measured:[/] {TITLES[name]}: {error}")
    latency.table(found)
    return found


def _crashed(settings: Settings, engines: Engines, records: int) -> dict[str, Any]:
    """kill -9 half way; Kafka Streams is left out: what it may lose then is in its notes."""
    wanted = expected(records)
    able = {HEADRACE: crash.headrace} | ({} if java.missing() else {"flink": crash.flink})
    found: dict[str, Any] = {}
    for name, killed in able.items():
        try:
            found[name] = killed(settings, engines, CRASHED, records, wanted)
        except crash.NotKilled as error:
            found[name] = {"not_measured": str(error)}
        report.console.print(f"  kill -9: {TITLES[name]}: {found[name]}")
        drop_read_model(settings, model(name, CRASHED))
    return {**found, "streams": "not done"}
