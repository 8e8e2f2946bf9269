"""Circuit breakers: when they open, who probes, and what closes them."""

from __future__ import annotations

from streams.runtime.reactor.breaker import PROBE_WAIT_MS, Breakers
from streams.runtime.reactor.rules import Breaker

RULE = Breaker(failures=3, open_ms=100, open_ms_max=350)


def opened() -> Breakers:
    breakers = Breakers(RULE)
    for _ in range(3):
        breakers.failed("p", 1_000, probe=False)
    return breakers


def test_it_opens_after_so_many_failures_in_a_row():
    breakers = Breakers(RULE)
    for now_ms in (1, 2):
        breakers.failed("p", now_ms, probe=False)
    breakers.succeeded("p", probe=False)
    for now_ms in (3, 4):
        breakers.failed("p", now_ms, probe=False)
    assert breakers.wait_ms("p", 4) == 0
    breakers.failed("p", 5, probe=False)
    assert breakers.wait_ms("p", 5) == 100
    assert breakers.wait_ms("p", 55) == 50
    assert breakers.wait_ms("other", 5) == 0
    assert breakers.open == 1


def test_one_probe_at_a_time_and_its_success_closes():
    breakers = opened()
    assert breakers.wait_ms("p", 1_100) == 0
    assert breakers.begin("p")
    assert breakers.wait_ms("p", 1_100) == PROBE_WAIT_MS
    breakers.succeeded("p", probe=True)
    assert breakers.wait_ms("p", 1_100) == 0
    assert not breakers.begin("p")
    assert breakers.open == 0


def test_a_failed_probe_doubles_the_time_up_to_a_bound():
    breakers = opened()
    waits = []
    now_ms = 1_000
    for _ in range(4):
        now_ms += breakers.wait_ms("p", now_ms)
        assert breakers.begin("p")
        breakers.failed("p", now_ms, probe=True)
        waits.append(breakers.wait_ms("p", now_ms))
    assert waits == [200, 350, 350, 350]


def test_calls_that_began_before_it_opened_change_nothing():
    breakers = opened()
    breakers.succeeded("p", probe=False)
    breakers.failed("p", 1_050, probe=False)
    assert breakers.wait_ms("p", 1_050) == 50


def test_a_probe_that_says_nothing_lets_another_try():
    breakers = opened()
    assert breakers.begin("p")
    breakers.undecided("p", probe=True)
    assert breakers.wait_ms("p", 1_100) == 0
    assert breakers.begin("p")


def test_a_clock_that_is_set_back_does_not_hold_it_open():
    assert opened().wait_ms("p", -1_000_000) == 100


def test_without_a_name_there_is_no_breaker():
    breakers = Breakers(RULE)
    for _ in range(10):
        breakers.failed("", 0, probe=False)
    assert breakers.wait_ms("", 0) == 0
