"""`bench sinks`: rows a second into every store, by our drivers and by the clients alone."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench import report, shapes
from tests.bench.contenders import raw_stores
from tests.bench.measure import Run, python
from tests.bench.turns import Contender, figures, take_turns

GUARANTEES = {
    "driver": "one write: refused unless the position is the expected one, applied once however "
    "often it is sent, durable with its position when it returns",
    "raw": "none of that: rows are sent, the answers are waited for",
}
WAYS = {"driver": "our driver", "raw": "client alone"}


@dataclass(frozen=True)
class Case:
    """A shape in a store: records a run, rows a write, and what the driver stores beside."""

    store: str
    shape: str
    records: int
    rows: int
    more: str = ""

    @property
    def name(self) -> str:
        return f"{self.store} {self.shape}"


CASES = (
    Case("redis", "totals", 1_000_000, 20_000, "an index of the windows"),
    Case(
        "redis",
        "rankings",
        300_000,
        8_000,
        "ties in order of time: the stored score is compared first; a hash of scores and a set of "
        "boards for every member",
    ),
    Case("clickhouse", "totals", 2_000_000, 100_000, "two looks at the position"),
    Case("clickhouse", "events", 2_000_000, 100_000, "two looks at the position"),
    Case("cassandra", "totals", 120_000, 20_000, "the write as one piece in a journal"),
    Case("cassandra", "events", 120_000, 20_000, "the write as one piece in a journal"),
    Case("s3", "totals", 2_000_000, 100_000, "a manifest; objects merged on the way"),
    Case("s3", "events", 2_000_000, 100_000, "a manifest; objects merged on the way"),
)


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` caps every
    case.
    """
    chosen = contenders(records)
    measured = take_turns(chosen, runs, None)
    result = {
        "guarantees": GUARANTEES,
        "raw_ways": raw_stores.__doc__,
        "checked": "rows and sums read back after every run; of our driver the position, too",
        "cpu": "of the client's process; what the servers use is not counted",
        "cases": {case.name: _case(case, measured) for case in CASES},
    }
    columns = ("median", "driver rows/s", "raw rows/s", "ratio", "driver µs CPU", "raw µs CPU")
    keys = ("driver_rows_per_s", "raw_rows_per_s", "ratio", "driver_cpu_us", "raw_cpu_us")
    rows = [(name, *(one[key] for key in keys)) for name, one in result["cases"].items()]
    report.table("rows into stores", columns, rows)
    report.save("sinks", result)
    return result


def contenders(records: int | None = None) -> dict[str, Contender]:
    """Both ways of every case, next to each other; each checks what it stored itself."""
    found: dict[str, Contender] = {}
    for case in CASES:
        size = min(case.records, records or case.records)
        for way, title in WAYS.items():
            command = python("sinks", case.store, case.shape, way, size, min(case.rows, size))
            found[f"{case.name} {way}"] = Contender(f"{case.name}, {title}", command)
    return found


def _case(case: Case, measured: dict[str, list[Run]]) -> dict[str, Any]:
    ours, theirs = (measured[f"{case.name} {way}"] for way in WAYS)
    by_turn = [one.rate / other.rate for one, other in zip(ours, theirs, strict=True)]
    driver, raw = figures("our driver", ours), figures("client alone", theirs)
    return {
        "driver_rows_per_s": round(driver["events_per_s"]),
        "raw_rows_per_s": round(raw["events_per_s"]),
        "ratio": round(median(by_turn), 2),
        "ratio_by_turn": [round(one, 2) for one in by_turn],
        "driver_cpu_us": driver["cpu_s_per_million"],
        "raw_cpu_us": raw["cpu_s_per_million"],
        "rows_a_write": case.rows,
        "rows": ours[0].events,
        "driver_stores_beside": case.more,
        "key": list(shapes.SHAPES[case.shape].columns),
        "runs": {"driver": driver["runs"], "raw": raw["runs"]},
    }
