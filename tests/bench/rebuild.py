"""`bench rebuild`: how fast each read model comes out of the log, from nothing to answering."""

from __future__ import annotations

from statistics import median
from typing import Any

import msgspec

from streams.runtime.settings import Settings
from tests.bench import report, traffic
from tests.bench.measure import Run, broker_process, python, run

RECORDS = 1_000_000
MODELS = ("ads-windows", "ads-events", "leaderboard")


class RowsMissing(AssertionError):
    """A rebuild did not fold and apply every record; the traffic has nothing to drop."""


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result."""
    settings, records = Settings.read(), records or RECORDS
    broker = broker_process(settings)
    measured: dict[str, list[Run]] = {name: [] for name in MODELS}
    for name in MODELS:
        traffic.ensure(settings, name, records)
    for turn in range(runs):
        for name in MODELS:
            one = run(python("rebuild", name, records), broker=broker)
            if (one.events, one.finish.count) != (records, records):
                raise RowsMissing(f"{name}: {one.events} folded, {one.finish.count} applied")
            measured[name].append(one)
            report.console.print(
                f"  {turn + 1}/{runs} {name:<14} {one.rate:>10,.0f} rows/s  "
                f"load {one.load_1min:.1f}, others {one.others_cpu_s:.1f} s"
            )
    result = {"records": records, "models": {n: _figures(r) for n, r in measured.items()}}
    columns = ("median", "rows/s", "CPU s/M", "peak MiB")
    keys = ("rows_per_s", "cpu_s_per_million", "rss_peak_mib")
    rows = [(name, *(one[key] for key in keys)) for name, one in result["models"].items()]
    report.table(f"rebuild of {records:,} records", columns, rows)
    report.save("rebuild", result)
    return result


def _figures(runs: list[Run]) -> dict[str, Any]:
    per_million = 1e6 / runs[0].events
    return {
        "rows_per_s": round(median(one.rate for one in runs)),
        "cpu_s_per_million": round(median(one.finish.cpu_s for one in runs) * per_million, 3),
        "rss_peak_mib": max(one.finish.rss_peak_mib for one in runs),
        "runs": [msgspec.to_builtins(one, str_keys=True) for one in runs],
    }
