"""Leases save calls, and keep their bound."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Away

from sinks.limiter.counters import Ask, Counters, Taken
from sinks.limiter.leases import Leases
from tests.limiter.naive import most_in_any_window
from tests.limiter.rules import T, a_rule

pytestmark = pytest.mark.stack


class Counted(Counters):
    """Counts calls."""

    calls = 0

    async def take(self, asks: Sequence[Ask], now_ms: int | None = None) -> Taken:
        self.calls += 1
        return await super().take(asks, now_ms)


async def test_a_lease_is_handed_out_without_a_call(counters: Counters) -> None:
    counted = Counted(counters._client)
    leases, rule = Leases(counted), a_rule(lease_units=20)
    taken = [await leases.take([Ask(rule, "k", 1)], T) for _ in range(120)]
    assert sum(one.admitted for one in taken) == 100
    assert counted.calls < 5 + 20 + 1


@pytest.mark.parametrize("algorithm", ["TOKEN_BUCKET", "SLIDING_WINDOW"])
async def test_a_window_holds_at_most_the_limit_and_what_was_leased(
    algorithm: Any, counters: Counters
) -> None:
    """Three processes, a clock of our own: over by at most `processes x lease_units`."""
    chance = random.Random(7)
    rule = a_rule(algorithm=algorithm, limit=60, burst=0, window_ms=1_000, lease_units=5)
    fleet, now = [Leases(counters) for _ in range(3)], T
    log: list[tuple[int, int]] = []
    for _ in range(1_500):
        now += chance.randrange(8)
        units = chance.randint(1, 2)
        if (await chance.choice(fleet).take([Ask(rule, "k", units)], now)).admitted:
            log.append((now, units))
    # A token bucket may hold a full burst at the window's start, and fills up during it.
    exact = 60 if algorithm == "SLIDING_WINDOW" else 120
    assert most_in_any_window(log, 1_000) <= exact + 3 * 5
    assert sum(units for _, units in log) > 3 * 60


async def test_parallel_requests_renew_a_lease_once(counters: Counters) -> None:
    leases, rule = Leases(counters), a_rule(lease_units=10)
    taken = await asyncio.gather(*(leases.take([Ask(rule, "k", 1)], T) for _ in range(50)))
    assert all(one.admitted for one in taken)
    left = (await counters.take([Ask(rule, "k", 0)], T)).verdicts[0].left
    assert 100 - 50 - 10 <= left <= 100 - 50


async def test_what_a_refused_request_had_in_hand_stays_in_hand(counters: Counters) -> None:
    leased, narrow = a_rule(lease_units=10), a_rule(limit=1)
    leases = Leases(counters)
    both = [Ask(leased, "k", 1), Ask(narrow, "k", 1)]
    assert [(await leases.take(both, T)).admitted for _ in range(4)] == [True, False, False, False]
    counted = Counted(counters._client)
    leases.counters = counted
    for _ in range(9):
        assert (await leases.take([Ask(leased, "k", 1)], T)).admitted
    assert counted.calls == 0


async def test_a_failed_call_gives_back_what_was_in_hand(counters: Counters) -> None:
    class Broken(Counters):
        async def take(self, asks: Sequence[Ask], now_ms: int | None = None) -> Taken:
            raise Away

    leased, other = a_rule(lease_units=3), a_rule()
    leases = Leases(counters)
    assert (await leases.take([Ask(leased, "k", 1)], T)).admitted
    leases.counters = Broken(counters._client)
    with pytest.raises(Away):
        await leases.take([Ask(leased, "k", 1), Ask(other, "k", 1)], T)
    for _ in range(2):
        assert (await leases.take([Ask(leased, "k", 1)], T)).admitted
