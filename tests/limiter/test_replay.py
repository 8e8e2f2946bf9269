"""A rule tried on the past admits exactly what the naive rule admits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import polars as pl
import pytest

from schemas.limiter.events import REQUEST_DECIDED
from sinks.limiter.counters import Ask, Counters, counter
from streams.limiter.replay import ordered, spent, stored, tried
from tests.limiter.naive import NaiveBucket, NaiveWindow, most_in_any_window
from tests.limiter.rules import T, a_rule

MILLION = 1_000_000
PARAMETERS = [
    {"algorithm": "TOKEN_BUCKET", "limit": 20, "window_ms": 60_000, "burst": 35},
    {"algorithm": "SLIDING_WINDOW", "limit": 20, "window_ms": 60_000, "slots": 10},
]


def traffic(rows: int, clients: int, seed: int = 1) -> pl.DataFrame:
    """A day of decided requests, a few clients much busier than the rest."""
    chance = np.random.default_rng(seed)
    times = np.sort(chance.integers(T, T + 86_400_000, rows))
    who = (clients * chance.random(rows) ** 3).astype(int)
    frame = pl.DataFrame({"event_time": times, "who": who, "cost": chance.integers(1, 4, rows)})
    return frame.select(
        pl.int_range(pl.len()).cast(pl.String).alias("request_id"),
        pl.format("c{}", "who").alias("principal"),
        pl.lit("10.0.0.1").alias("client"),
        pl.lit("GET").alias("method"),
        pl.lit("/v1/things").alias("route"),
        pl.col("cost").cast(pl.Int64),
        pl.lit(value=True).alias("admitted"),
        pl.col("event_time").cast(pl.Datetime("ms", "UTC")),
    )


def naive(parameters: dict[str, Any], rows: pl.DataFrame) -> list[bool]:
    """What the naive rule admits."""
    budgets: dict[str, NaiveBucket | NaiveWindow] = {}
    found = []
    times = rows["event_time"].dt.epoch("ms").to_list()
    for at, who, cost in zip(times, rows["principal"], rows["cost"], strict=True):
        if who not in budgets:
            limit, window_ms = parameters["limit"], parameters["window_ms"]
            if parameters["algorithm"] == "TOKEN_BUCKET":
                budgets[who] = NaiveBucket(limit, window_ms, parameters["burst"])
            else:
                budgets[who] = NaiveWindow(limit, window_ms, parameters["slots"])
        found.append(budgets[who].admits(at, cost))
    return found


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_a_million_requests_under_another_rule_equal_the_oracle(parameters: dict[str, Any]) -> None:
    rows = traffic(MILLION, 8_000)
    found = tried(a_rule(**parameters), rows)
    assert found.ids == rows["request_id"].to_list()
    assert found.admitted == naive(parameters, rows)
    assert 0 < found.refused < MILLION
    assert found.changed == found.refused == sum(found.refused_by_key.values())


@pytest.mark.stack
@pytest.mark.parametrize("parameters", PARAMETERS)
async def test_the_counters_admit_what_the_replay_admits(
    parameters: dict[str, Any], counters: Counters
) -> None:
    rows, rule = traffic(20_000, 40), a_rule(**parameters)
    times = rows["event_time"].dt.epoch("ms").to_list()
    live = [
        (await counters.take([Ask(rule, who, cost)], at)).admitted
        for at, who, cost in zip(times, rows["principal"], rows["cost"], strict=True)
    ]
    assert live == tried(rule, rows).admitted == naive(parameters, rows)


def test_no_window_holds_more_than_the_limit() -> None:
    rule = a_rule(limit=20, window_ms=1_000, slots=4)
    chance = random.Random(2)
    oracle, now = NaiveWindow(20, 1_000, 4), T
    for _ in range(2_000):
        now += chance.randrange(40)
        oracle.admits(now, chance.randint(1, 3))
    assert 17 < most_in_any_window(oracle.log, rule.window_ms) <= 20


def test_repeats_are_tried_once_and_in_order() -> None:
    rows = traffic(50, 3)
    mixed = pl.concat([rows, rows[10:20]]).sample(fraction=1.0, shuffle=True, seed=4)
    assert ordered(mixed)["event_time"].to_list() == rows["event_time"].to_list()


@pytest.mark.stack
@pytest.mark.parametrize("algorithm", ["TOKEN_BUCKET", "SLIDING_WINDOW"])
async def test_lost_counters_are_put_back_from_the_log(algorithm: Any, counters: Counters) -> None:
    """And go on as if nothing had been lost; what was counted since is left alone."""
    rule = a_rule(algorithm=algorithm, limit=10, window_ms=3_600_000)
    log = []
    for n in range(7):
        taken = await counters.take([Ask(rule, "k", 1)])
        log.append({
            "request_id": str(n), "principal": "k", "client": "", "method": "GET", "route": "/",
            "cost": 1, "admitted": True, "degraded": False, "event_time": taken.now_ms,
            "verdicts": [{
                "rule_id": rule.rule_id, "key": "k", "units": 1,
                "admitted": True, "charged": True, "shadow": False,
            }],
        })  # fmt: skip
    rows = pl.DataFrame(log, schema=dict(REQUEST_DECIDED.dtypes))
    before = (await counters.take([Ask(rule, "k", 0)])).verdicts[0].left
    await counters._client.delete(counter(rule, "k"))
    now = await counters.now_ms()
    lost = {
        counter(r, key, part): (ttl_ms, fields)
        for r, key, state in spent({rule.rule_id: rule}, rows)
        for part, ttl_ms, fields in stored(r, state, now)
    }
    assert await counters.restore(lost) == 1
    assert (await counters.take([Ask(rule, "k", 0)])).verdicts[0].left == before == 3
    assert await counters.restore(lost) == 0
