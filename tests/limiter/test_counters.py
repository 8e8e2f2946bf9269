"""The counters on a real server: as exact as the pure rule, at any concurrency."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.limiter.rules import Rule
from sinks.limiter.counters import Ask, Counters, counter
from streams.limiter.algorithms import State, decide
from streams.runtime.settings import Settings
from tests.limiter.rules import T, a_rule

pytestmark = pytest.mark.stack

RULES = st.builds(
    a_rule,
    algorithm=st.sampled_from(["TOKEN_BUCKET", "SLIDING_WINDOW"]),
    limit=st.integers(1, 50),
    window_ms=st.sampled_from([10, 1_000, 60_000]),
    slots=st.sampled_from([1, 2, 5, 10]),
)
STEPS = st.lists(
    st.tuples(st.integers(-500, 5_000), st.integers(0, 60), st.integers(0, 20)),
    min_size=1,
    max_size=40,
)
"""Milliseconds to the next request (a clock may be set back), units, and units of a lease."""


@asynccontextmanager
async def connected() -> AsyncIterator[Counters]:
    """Another process's counters."""
    other = Counters.connect(Settings.read().redis.url.get_secret_value(), 5.0)
    try:
        yield other
    finally:
        await other.close()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rules=st.lists(RULES, min_size=1, max_size=3), steps=STEPS, shadow=st.booleans())
def test_lua_and_the_pure_rule_agree_to_the_unit(
    rules: list[Rule], steps: list[tuple[int, int, int]], *, shadow: bool
) -> None:
    """Verdicts, what is left, and times, of several rules at once, with an injected clock."""
    if shadow:
        rules = [*rules, a_rule(limit=7, window_ms=1_000, mode="SHADOW")]
    asyncio.run(_agree(rules, steps))


async def _agree(rules: list[Rule], steps: list[tuple[int, int, int]]) -> None:
    async with connected() as counters:
        await _compare(counters, rules, steps)


async def _compare(
    counters: Counters, rules: list[Rule], steps: list[tuple[int, int, int]]
) -> None:
    states: list[State] = [None] * len(rules)
    now, key = T, uuid.uuid4().hex
    for after_ms, units, extra in steps:
        now += after_ms
        taken = await counters.take([Ask(r, key, units, units + extra) for r in rules], now)
        pure = [
            decide(r, s, now, units, want=units + extra) for r, s in zip(rules, states, strict=True)
        ]
        admitted = all(v.admits for r, (v, _) in zip(rules, pure, strict=True) if not r.shadow)
        assert taken.admitted == admitted
        for n, (verdict, after) in enumerate(pure):
            told = taken.verdicts[n]
            assert (told.admits, told.retry_ms) == (verdict.admits, verdict.retry_ms)
            if admitted and verdict.admits:
                states[n] = after
                assert (told.charged, told.left) == (verdict.taken, verdict.left)
                assert told.reset_ms == verdict.reset_ms
            else:
                assert told.charged == 0


@pytest.mark.parametrize("algorithm", ["TOKEN_BUCKET", "SLIDING_WINDOW"])
async def test_of_2000_parallel_requests_exactly_100_are_admitted(
    algorithm: Any, counters: Counters
) -> None:
    rule = a_rule(algorithm=algorithm, window_ms=86_400_000)
    async with connected() as other:
        fleet = (counters, other)
        taken = await asyncio.gather(
            *(fleet[n % 2].take([Ask(rule, "k", 1)]) for n in range(2_000))
        )
    assert sum(one.admitted for one in taken) == 100


async def test_two_windows_never_meet_in_a_burst(counters: Counters) -> None:
    """All at the end of one window, all at the start of the next: a fixed window admits 200."""
    rule = a_rule()
    moments = [T + 9_999] * 150 + [T + 10_000] * 150 + [T + 10_001] * 50
    taken = [await counters.take([Ask(rule, "k", 1)], at) for at in moments]
    assert sum(one.admitted for one in taken) == 100


async def test_all_rules_or_none_are_charged(counters: Counters) -> None:
    wide, narrow = a_rule(limit=10), a_rule(limit=3)
    both = [Ask(wide, "k", 1), Ask(narrow, "k", 1)]
    assert [(await counters.take(both, T)).admitted for _ in range(6)] == [True] * 3 + [False] * 3
    left = (await counters.take([Ask(wide, "k", 1)], T)).verdicts[0].left
    assert left == 6  # 3 of both, and this one


async def test_a_cost_is_taken_whole_or_not_at_all(counters: Counters) -> None:
    rule = a_rule(limit=10)
    costs = [4, 4, 4, 2, 1]
    taken = [(await counters.take([Ask(rule, "k", cost)], T)).admitted for cost in costs]
    assert taken == [True, True, False, True, False]
    never = await counters.take([Ask(rule, "k", 11)], T)
    assert never.verdicts[0].retry_ms == -1


async def test_retry_after_is_the_first_moment_that_passes(counters: Counters) -> None:
    chance = random.Random(3)
    for algorithm in ("TOKEN_BUCKET", "SLIDING_WINDOW"):
        rule, now = a_rule(algorithm=algorithm, limit=7, window_ms=1_000), T
        for _ in range(200):
            now += chance.randrange(60)
            verdict = (await counters.take([Ask(rule, "k", 2)], now)).verdicts[0]
            if verdict.retry_ms:
                early = await counters.take([Ask(rule, "k", 2)], now + verdict.retry_ms - 1)
                assert not early.admitted
                now += verdict.retry_ms
                assert (await counters.take([Ask(rule, "k", 2)], now)).admitted


async def test_a_shadow_refuses_nothing_and_is_counted(counters: Counters) -> None:
    shadow, rule = a_rule(limit=2, mode="SHADOW"), a_rule(limit=4)
    taken = [await counters.take([Ask(shadow, "k", 1), Ask(rule, "k", 1)], T) for _ in range(6)]
    assert [one.admitted for one in taken] == [True] * 4 + [False] * 2
    assert [one.verdicts[0].admits for one in taken] == [True] * 2 + [False] * 4
    assert sum(one.verdicts[0].charged for one in taken) == 2


async def test_the_clock_is_the_servers(counters: Counters) -> None:
    before = await counters.now_ms()
    taken = await counters.take([Ask(a_rule(), "k", 1)])
    assert before <= taken.now_ms <= await counters.now_ms()


@pytest.mark.parametrize("algorithm", ["TOKEN_BUCKET", "SLIDING_WINDOW"])
async def test_a_split_budget_is_never_exceeded_and_hardly_missed(
    algorithm: Any, counters: Counters
) -> None:
    """At most `split x processes x units` are unused when somebody is refused."""
    chance = random.Random(5)
    rule = a_rule(algorithm=algorithm, limit=1_003, window_ms=86_400_000, split=8)
    spent, largest = 0, 3
    async with connected() as second, connected() as third:
        fleet = (counters, second, third)
        for _ in range(1_200):
            units = chance.randint(1, largest)
            taken = await chance.choice(fleet).take([Ask(rule, "hot", units)], T)
            spent += units * taken.admitted
            if not taken.admitted:
                assert spent >= 1_003 - rule.split * len(fleet) * largest
    assert spent <= 1_003


async def test_counters_in_several_slots_are_charged_all_or_none(counters: Counters) -> None:
    """As on a Cluster: one call a slot; who was charged before another refused gets it back."""
    spread = Counters(counters._client, slot=lambda name: name.split("}")[0])
    for algorithm in ("TOKEN_BUCKET", "SLIDING_WINDOW"):
        wide = a_rule(algorithm=algorithm, limit=50, per=("CLIENT",))
        narrow = a_rule(limit=3, per=("PRINCIPAL",))
        asks = [Ask(wide, "10.0.0.1", 2), Ask(narrow, "me", 1)]
        admitted = [(await spread.take(asks, T)).admitted for _ in range(6)]
        assert admitted == [True] * 3 + [False] * 3
        taken = await spread.take([Ask(wide, "10.0.0.1", 44)], T)
        assert taken.admitted
        assert taken.verdicts[0].left == 0


async def test_counters_expire(counters: Counters) -> None:
    """A key that is whole again takes no memory."""
    for algorithm in ("TOKEN_BUCKET", "SLIDING_WINDOW"):
        rule = a_rule(algorithm=algorithm, limit=10, window_ms=1_000)
        taken = await counters.take([Ask(rule, "k", 5)])
        ttl_ms = await counters._client.pttl(counter(rule, "k"))
        assert 0 < ttl_ms <= taken.verdicts[0].reset_ms + 1
