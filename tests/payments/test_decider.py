"""The rules under the real owner: keys, timers, crashes, and a log that folds to the same state."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.payments.events import OpenAccount, PaymentChanged, TransferRecorded
from streams.payments import SYSTEM
from streams.runtime.decider.testing import DeciderHarness
from tests.payments.desk import DAY, sums, transfer
from tests.payments.test_payments import capture, payment, refund, told

(DECIDER,) = SYSTEM.deciders


def opened() -> DeciderHarness:
    """Alice has 100.00 EUR."""
    harness = DeciderHarness(DECIDER)
    for name in ("alice", "bob", "shop"):
        harness.send(OpenAccount("main", name, "EUR", "credit", 0))
    harness.send(OpenAccount("main", "world", "EUR", "debit", None))
    harness.send(transfer("world", "alice", 10_000))
    return harness


def log(harness: DeciderHarness) -> list[tuple[int, Any]]:
    return [(event.time_ms, event.row) for event, _ in harness.accepted()]


def test_one_key_is_one_transfer() -> None:
    harness = opened()
    asked = transfer("alice", "bob", 6_000)
    answers = [harness.send(asked, idempotency_key="k", subject="s") for _ in range(50)]
    assert {(a.status, a.body, a.offset) for a in answers} == {
        (201, answers[0].body, answers[0].offset)
    }
    assert [a.replay for a in answers] == [False] + [True] * 49
    other = harness.send(transfer("alice", "bob", 1), idempotency_key="k", subject="s")
    assert other.status == 422
    body = msgspec.json.decode(answers[0].body)
    assert body["postings"][0] == {
        "account": "alice",
        "currency": "EUR",
        "amount": -6_000,
        "balance": 4_000,
    }


def test_a_refusal_is_remembered_with_its_key_too() -> None:
    harness = opened()
    asked = transfer("bob", "alice", 1)
    first = harness.send(asked, idempotency_key="k")
    harness.send(transfer("alice", "bob", 100))
    again = harness.send(asked, idempotency_key="k")
    assert (first.status, again.status, again.replay) == (409, 409, True)
    assert first.body == again.body


def test_a_crash_at_any_moment_leaves_every_hold_and_timer() -> None:
    harness = opened()
    harness.send(transfer("alice", "bob", 100, hold=True, timeout_ms=5_000))
    harness.send(payment())
    harness.crash()
    harness.advance(5_000)
    harness.crash()
    harness.send(told("auth"))
    harness.send(capture("c", 100))
    harness.crash()
    harness.send(told("c"))
    harness.send(refund("r", 40))
    harness.advance(DAY)
    harness.crash()
    harness.send(told("r"))
    rows = [row for _, row in log(harness)]
    expired = [r for r in rows if isinstance(r, TransferRecorded) and r.change == "expired"]
    assert len(expired) == 1
    queried = [r for r in rows if isinstance(r, PaymentChanged) and r.change == "query_due"]
    assert queried
    last = rows[-1]
    assert (last.captured, last.refunded, last.state) == (100, 40, "partially_refunded")
    assert not any(sums(log(harness)).values())
    assert harness.digest() == harness.replay_digest()


def test_what_the_rules_never_saw_is_refused_and_harmless() -> None:
    harness = opened()
    before = harness.digest()
    answer = harness.send(transfer("alice", "bob", 2**62, book="main"))
    assert answer.status == 422
    assert harness.send(transfer("", "", 5)).status == 422
    assert before == harness.digest() == harness.replay_digest()
