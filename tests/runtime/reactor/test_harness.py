"""The rules of a reactor as its author sees them: tries, delays, limits, breakers, redrives."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.reactor.core import Why
from streams.runtime.reactor.rules import (
    Breaker,
    GiveUp,
    Limits,
    Reactor,
    Retry,
    RetryPolicy,
    Route,
)
from streams.runtime.reactor.testing import Harness
from tests.runtime.reactor.asking import Answered, Asked, reactor

DELAYS_MS = (300, 1_000)


class Script:
    """Answers each try of a question from a list; the last one counts from then on."""

    def __init__(self, **answers):
        self.answers = answers
        self.hold = asyncio.Event()

    def route(self, record, row):
        return None if row.target == "nobody" else Route(row.tenant, row.target, row.provider)

    async def act(self, task):
        answers = self.answers.get(task.row.question, ["ok"])
        answer = answers[min(task.attempt, len(answers)) - 1]
        if answer == "hang":
            await self.hold.wait()
            return None
        if isinstance(answer, BaseException):
            raise answer
        return Answered(task.row.question, task.id, answer, task.attempt)

    def gave_up(self, task, reason):
        return Answered(task.row.question, task.id, reason, task.attempt)


def harness(script: Script, **more) -> Harness:
    given = {"limits": Limits(timeout_ms=60_000), **more}
    return Harness(reactor("run", "http://unused", **given), script)


async def test_a_task_is_tried_again_after_each_delay_and_then_given_up():
    h = harness(Script(q=[Retry("busy")]))
    await h.feed(Asked("q", "t"))
    await h.advance(299)
    assert len(h.calls) == 1
    await h.advance(1)
    assert len(h.calls) == 2
    await h.advance(999)
    assert len(h.calls) == 2
    await h.advance(1)
    assert [task.attempt for task in h.calls] == [1, 2, 3]
    assert {task.id for task in h.calls} == {"run.asked/0/0"}
    assert [one.reason for one in h.dead] == ["busy (try 3 of 3)"]
    assert [one.result for one in h.outcomes] == ["busy (try 3 of 3)"]
    await h.advance(10_000_000)
    assert len(h.calls) == 3


async def test_what_cannot_help_is_given_up_at_once_and_any_other_error_is_a_try():
    h = harness(Script(gone=[GiveUp("gone")], odd=[ZeroDivisionError("x"), "ok"]))
    await h.feed(Asked("gone", "t"), Asked("odd", "t"), Asked("other", "nobody"))
    await h.advance(300)
    assert [(one.task.attempt, one.reason) for one in h.dead] == [(1, "gone")]
    assert [one.reason for one in h.deferred] == ["ZeroDivisionError: x"]
    assert [(one.result, one.attempt) for one in h.outcomes] == [("gone", 1), ("ok", 2)]
    assert h.passed_over == 1


async def test_a_call_that_hangs_times_out_as_a_try():
    h = harness(Script(q=["hang", "ok"]), limits=Limits(timeout_ms=5_000))
    await h.feed(Asked("q", "t"))
    assert len(h.running) == 1
    await h.advance(4_999)
    assert len(h.running) == 1
    await h.advance(1)
    assert [one.reason for one in h.deferred] == ["timeout"]
    await h.advance(300)
    assert h.outcomes[0].attempt == 2


async def test_what_a_provider_asks_for_is_waited_for_in_hops():
    h = harness(Script(q=[Retry("later", after_ms=2_500), "ok"]))
    await h.feed(Asked("q", "t"))
    await h.advance(2_499)
    assert len(h.calls) == 1
    await h.advance(501)
    assert [task.attempt for task in h.calls] == [1, 2]
    assert [one.why for one in h.deferred] == [Why.FAILED, Why.EARLY, Why.EARLY, Why.EARLY]


async def test_held_back_costs_no_try_and_does_not_trouble_the_breaker():
    held = Retry("rate limit", after_ms=400, counts=False)
    h = harness(Script(q=[held]), breaker=Breaker(failures=2, open_ms=10_000))
    await h.feed(Asked("q", "t", "psp"))
    await h.advance(3_000)
    assert len(h.calls) > 4
    assert {task.attempt for task in h.calls} == {1}
    h.handler.answers = {}
    await h.advance(1_000)
    assert [one.result for one in h.outcomes] == ["ok"]


async def test_the_breaker_stops_calls_and_a_probe_lets_them_through_again():
    script = Script(**{f"q{n}": [Retry("down")] for n in range(10)})
    h = harness(script, limits=Limits(per_target=1), breaker=Breaker(3, 10_000, 20_000))
    await h.feed(*(Asked(f"q{n}", "t", "psp") for n in range(10)))
    assert len(h.calls) == 3
    assert Counter(one.why for one in h.deferred) == {Why.FAILED: 3, Why.BREAKER: 7}
    await h.feed(Asked("other", "t", "another"))
    assert len(h.calls) == 4
    script.answers = {}
    await h.advance(9_999)
    assert len(h.calls) == 4
    await h.advance(5_000)
    assert len(h.outcomes) == 11
    assert max(Counter(task.id for task in h.calls).values()) == 2


async def test_a_slow_target_holds_back_only_its_own():
    script = Script(**{f"slow{n}": ["hang"] for n in range(40)})
    h = harness(script, limits=Limits(per_target=2, waiting_max=5))
    await h.feed(*(Asked(f"slow{n}", "slow") for n in range(40)))
    for n in range(5):
        await h.feed(*(Asked(f"good{n}-{t}", t) for t in "abcdef"))
    assert len(h.outcomes) == 30
    assert len(h.running) == 2
    assert Counter(one.why for one in h.deferred) == {Why.LIMIT: 33}
    assert all(one.task.attempt == 1 for one in h.deferred)


async def test_a_tenant_has_its_share():
    script = Script(**{f"q{n}": ["hang"] for n in range(9)})
    h = harness(script, limits=Limits(per_tenant=3))
    await h.feed(*(Asked(f"q{n}", f"t{n}", tenant="big") for n in range(9)))
    await h.feed(Asked("small", "t", tenant="small"))
    assert len(h.running) == 3
    assert [one.question for one in h.outcomes] == ["small"]
    script.hold.set()
    await h.settle()
    assert len(h.calls) == 10


async def test_a_crash_repeats_what_ran_and_a_redrive_begins_anew():
    script = Script(q=["hang"], bad=[GiveUp("bad")])
    h = harness(script)
    await h.feed(Asked("q", "t"), Asked("bad", "t"), Asked("fine", "t"))
    await h.crash()
    assert Counter(task.row.question for task in h.calls) == {"q": 2, "bad": 1, "fine": 1}
    script.answers = {}
    await h.crash()
    await h.redrive()
    assert [one.result for one in h.outcomes] == ["bad", "ok", "ok", "ok"]
    assert (h.calls[-1].attempt, h.calls[-1].redrives) == (1, 1)
    assert h.dead == []


async def test_an_outcome_of_another_topic_is_refused():
    class Wrong(Script):
        async def act(self, task):
            return Asked("q", "t")

    with pytest.raises(TypeError, match="no topic for the outcome"):
        await harness(Wrong()).feed(Asked("q", "t"))


def test_a_reactor_whose_retry_topics_are_not_declared_says_what_to_write():
    one = reactor("run", "http://unused")
    with pytest.raises(ValueError, match=r'retries = \{ "run-asker" = \[5000\] \}'):
        Reactor(one.name, one.topic, one.open, retry=RetryPolicy((5_000,)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["", "p"]),
            st.lists(
                st.sampled_from(["ok", "retry", "held", "give up", "hang"]), min_size=1, max_size=3
            ),
        ),
        max_size=25,
    ),
    st.integers(0, 2_000),
    st.booleans(),
)
def test_every_event_ends_in_one_outcome_or_letter(events, pause_ms, crash):
    """Whatever the provider does: no event is lost, none is over twice, tries are bounded."""
    kinds = {
        "ok": "ok",
        "retry": Retry("retry"),
        "held": Retry("held", after_ms=500, counts=False),
        "give up": GiveUp("no"),
        "hang": "hang",
    }

    async def run():
        script = Script(
            **{f"q{n}": [kinds[k] for k in tries] for n, (_, _, tries) in enumerate(events)}
        )
        limits = Limits(in_flight_max=6, per_target=2, waiting_max=4, timeout_ms=1_500)
        h = harness(script, limits=limits, breaker=Breaker(2, 400, 800))
        for n, (target, provider, _) in enumerate(events):
            await h.feed(Asked(f"q{n}", target, provider))
        await h.advance(pause_ms)
        if crash:
            await h.crash()
        held = [n for n, (_, _, tries) in enumerate(events) if "held" in tries]
        await h.advance(60_000)
        for n in held:  # a rate limit that never ends is waited for as long
            script.answers[f"q{n}"] = ["ok"]
        await h.advance(600_000)
        over = Counter(one.task for one in h.outcomes)
        assert over == dict.fromkeys((f"run.asked/0/{n}" for n in range(len(events))), 1)
        assert max((task.attempt for task in h.calls), default=0) <= 3
        assert not h.running

    asyncio.run(run())


async def test_a_try_that_failed_may_tell_its_own_outcome_before_the_next_one():
    told = Answered("q", "t", "busy", 1)
    h = harness(Script(q=[Retry("busy", outcome=told), "ok"]))
    await h.feed(Asked("q", "t"))
    assert h.outcomes == [told]
    await h.advance(300)
    assert [one.result for one in h.outcomes] == ["busy", "ok"]
