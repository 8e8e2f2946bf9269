"""`bench limiter`: what a decision by rules adds to a bare call of Redis.

Turn about, call by call, on the same loop and server: `GET` of a key that is not there by the same
client, then a decision by one rule, by three rules, and by one with leases. So a slow moment of the
machine hits all alike. The figure is the difference of their 99th percentiles.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import polars as pl

from schemas.limiter.rules import Request, Rule
from sinks.limiter.counters import Ask, Counters
from sinks.limiter.leases import Leases
from streams.runtime.settings import Settings
from tests.bench import report

CALLS = 20_000
WARM_UP = 500
KEYS = 1_000
BARE = "bare GET"
TIMEOUT_S = 5.0


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. About 10 s a run."""
    calls = records or CALLS
    found = [asyncio.run(_run(calls)) for _ in range(runs)]
    names = list(found[0])
    figures = {name: _median([run[name] for run in found]) for name in names}
    bare = figures[BARE]
    rows = []
    for name, one in figures.items():
        one["added_p99_ms"] = one["p99_ms"] - bare["p99_ms"]
        rows.append([name, one["p50_ms"], one["p99_ms"], one["added_p99_ms"]])
    report.table("A decision beside a bare call", ["", "p50 ms", "p99 ms", "p99 added ms"], rows)
    result = {"calls": calls, "runs": runs, "figures": figures}
    report.save("limiter", result)
    return result


async def _run(calls: int) -> dict[str, dict[str, float]]:
    counters = Counters.connect(Settings.read().redis.url.get_secret_value(), TIMEOUT_S)
    leases = Leases(counters)
    one, three, leased = _rules()
    taken: dict[str, list[float]] = {BARE: [], "1 rule": [], "3 rules": [], "1 rule, leases": []}
    try:
        for n in range(calls + WARM_UP):
            who = Request(principal=f"bench-{n % KEYS}")
            asks = {
                "1 rule": [Ask(one, one.key(who), 1)],
                "3 rules": [Ask(rule, rule.key(who), 1) for rule in three],
                "1 rule, leases": [Ask(leased, "bench-hot", 1)],
            }
            began = time.perf_counter()
            await counters._client.get("bench.limiter")
            spent = {BARE: time.perf_counter() - began}
            for name, wanted in asks.items():
                began = time.perf_counter()
                await leases.take(wanted)
                spent[name] = time.perf_counter() - began
            if n >= WARM_UP:
                for name, seconds in spent.items():
                    taken[name].append(seconds * 1_000)
    finally:
        await counters.close()
    return {name: _percentiles(times) for name, times in taken.items()}


def _rules() -> tuple[Rule, tuple[Rule, ...], Rule]:
    """Counters of their own for each run; they expire by themselves."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    one = Rule(f"{name}-1", "SLIDING_WINDOW", 1_000, 10_000)
    bucket = Rule(f"{name}-2", "TOKEN_BUCKET", 1_000, 10_000)
    whole = Rule(f"{name}-3", "SLIDING_WINDOW", 10_000_000, 60_000, per=())
    second = Rule(f"{name}-4", "SLIDING_WINDOW", 1_000, 1_000)
    leased = Rule(f"{name}-5", "TOKEN_BUCKET", 1_000_000, 1_000, lease_units=100)
    return one, (bucket, whole, second), leased


def _percentiles(times: list[float]) -> dict[str, float]:
    series = pl.Series(times)
    return {
        "p50_ms": float(series.quantile(0.5) or 0.0),
        "p99_ms": float(series.quantile(0.99) or 0.0),
    }


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(pl.Series([run[name] for run in runs]).median()) for name in runs[0]}  # type: ignore[arg-type]
