"""Leases and ranges: what is disjoint stays disjoint, whatever clocks, crashes and repeats do."""

from __future__ import annotations

import itertools
import random
from typing import Any

import msgspec
import pytest

from schemas.ids.events import AllocateRange, EndLease, LeaseWorker, RenewLease
from schemas.ids.snowflake import WORKERS
from streams.ids import SYSTEM
from streams.ids.rules import RANGE_MAX, TTL_MS_MAX
from streams.runtime.decider.testing import START_MS, DeciderHarness

TTL = 60_000
(DECIDER,) = SYSTEM.deciders


def told(answer: Any) -> dict[str, Any]:
    assert answer.status < 300, answer.body
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


def refused(answer: Any) -> tuple[int, str]:
    return answer.status, msgspec.json.decode(answer.body)["code"]


def lease(harness: DeciderHarness, name: str, ttl_ms: int = TTL) -> dict[str, Any]:
    return told(harness.send(LeaseWorker("main", name, "h", ttl_ms), idempotency_key=name))


def test_a_lease_is_a_number_and_a_span_of_time_and_its_offset_is_the_epoch() -> None:
    harness = DeciderHarness(DECIDER)
    answer = harness.send(LeaseWorker("main", "a", "host/1", TTL))
    assert answer.status == 201
    found = told(answer)
    assert (found["worker"], found["from_ms"], found["until_ms"]) == (0, START_MS, START_MS + TTL)
    assert found["offset"] == answer.offset
    assert lease(harness, "b")["worker"] == 1


def test_the_same_question_again_is_the_same_lease() -> None:
    harness = DeciderHarness(DECIDER)
    assert lease(harness, "a") == lease(harness, "a")
    assert lease(harness, "b")["worker"] == 1


def test_all_numbers_leased_is_a_clear_no_until_one_runs_out() -> None:
    harness = DeciderHarness(DECIDER)
    workers = {lease(harness, f"l{n}")["worker"] for n in range(WORKERS)}
    assert workers == set(range(WORKERS))
    assert refused(harness.send(LeaseWorker("main", "more", "h", TTL))) == (503, "no_worker")
    harness.advance(TTL)
    assert lease(harness, "then")["from_ms"] == START_MS + TTL


def test_renewed_is_longer_and_also_when_it_had_run_out() -> None:
    harness = DeciderHarness(DECIDER)
    first = lease(harness, "a")
    harness.advance(TTL * 3)
    again = told(harness.send(RenewLease("main", 0, "a", TTL)))
    assert (again["from_ms"], again["until_ms"]) == (first["from_ms"], START_MS + 4 * TTL)


def test_a_number_that_somebody_else_has_is_lost() -> None:
    harness = DeciderHarness(DECIDER)
    lease(harness, "a", ttl_ms=1)
    for n in range(WORKERS - 1):
        lease(harness, f"o{n}", ttl_ms=10)
    harness.advance(5)
    assert lease(harness, "thief")["worker"] == 0
    for row in (RenewLease("main", 0, "a", TTL), EndLease("main", 0, "a", 0)):
        assert refused(harness.send(row)) == (409, "lease_lost")


def test_an_ended_lease_frees_what_it_did_not_use_and_is_over() -> None:
    harness = DeciderHarness(DECIDER)
    lease(harness, "a")
    ended = told(harness.send(EndLease("main", 0, "a", START_MS + 7)))
    assert (ended["change"], ended["until_ms"]) == ("ended", START_MS + 8)
    assert refused(harness.send(RenewLease("main", 0, "a", TTL)))[1] == "lease_lost"


@pytest.mark.parametrize("last_ms", [0, START_MS - 5, START_MS + 10 * TTL])
def test_an_end_can_give_back_no_more_and_no_less_than_the_span(last_ms: int) -> None:
    harness = DeciderHarness(DECIDER)
    lease(harness, "a")
    ended = told(harness.send(EndLease("main", 0, "a", last_ms)))
    assert START_MS <= ended["until_ms"] <= START_MS + TTL


def test_spans_of_a_number_never_meet_though_the_clock_of_the_log_goes_back() -> None:
    chance = random.Random(14)
    harness = DeciderHarness(DECIDER)
    held: list[tuple[int, str]] = []
    for n in range(400):
        harness._ports.now_ms += chance.choice([0, 1, 500, TTL, -3_600_000, 3_600_000])
        match chance.randrange(4):
            case 0 | 1:
                answer = harness.send(LeaseWorker("main", f"l{n}", "h", chance.randrange(1, TTL)))
                if answer.status == 201:
                    held.append((told(answer)["worker"], f"l{n}"))
            case 2 if held:
                harness.send(RenewLease("main", *chance.choice(held), TTL))
            case _ if held:
                last_ms = harness.now_ms + chance.randrange(-TTL, TTL)
                harness.send(EndLease("main", *held.pop(chance.randrange(len(held))), last_ms))
        if n % 97 == 0:
            harness.crash()
    spans: dict[tuple[int, str], tuple[int, int]] = {}
    for event in harness.events:
        if type(event).__name__ == "LeaseChanged":
            spans[event.worker, event.lease_id] = event.from_ms, event.until_ms
    assert len(spans) > 100
    for worker in {worker for worker, _ in spans}:
        own = sorted(span for (of, _), span in spans.items() if of == worker)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(own)), worker
    assert harness.replay_digest() == harness.digest()


def test_ranges_follow_each_other_and_a_repeat_gets_the_same() -> None:
    harness = DeciderHarness(DECIDER)
    ask = AllocateRange("main", "h", 1_000)
    firsts = [told(harness.send(ask, idempotency_key=k))["first"] for k in ("a", "b", "a")]
    assert firsts == [0, 1_000, 0]
    harness.crash()
    assert told(harness.send(ask))["first"] == 2_000


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (AllocateRange("main", "h", 0), "bad_size"),
        (AllocateRange("main", "h", RANGE_MAX + 1), "bad_size"),
        (LeaseWorker("main", "a", "h", 0), "bad_ttl"),
        (LeaseWorker("main", "a", "h", TTL_MS_MAX + 1), "bad_ttl"),
        (RenewLease("main", 5, "", TTL), "lease_lost"),
        (RenewLease("main", -1, "a", TTL), "lease_lost"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_code(row: Any, code: str) -> None:
    harness = DeciderHarness(DECIDER)
    assert refused(harness.send(row))[1] == code
