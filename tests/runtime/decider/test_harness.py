"""What a decider promises, by the harness that systems test their rules with."""

from __future__ import annotations

import msgspec
import pytest

from streams.runtime.decider.folded import FoldFailed
from streams.runtime.decider.ports import CommandsReplaced
from streams.runtime.decider.records import CommandRejected, OwnershipClaimed
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.testing import DeciderHarness, LogRecord, Slice
from streams.runtime.decider.wire import envelope_headers
from tests.runtime.decider.bank import (
    HOLD_MS,
    Account,
    Deposit,
    Deposited,
    Held,
    Hold,
    HoldExpired,
    Misbehave,
    bank,
)


@pytest.fixture
def harness() -> DeciderHarness:
    return DeciderHarness(bank())


def test_a_command_is_answered_by_its_event(harness: DeciderHarness) -> None:
    reply = harness.send(Deposit("a", 5))
    assert (reply.status, reply.source_offset, reply.replay) == (201, 0, False)
    assert msgspec.json.decode(reply.body) == {"balance": 5, "offset": reply.offset}
    assert harness.events == [Deposited("a", 5, 5)]
    assert harness.state["accounts"]["a"] == Account(5)
    assert harness.replay_digest() == harness.digest()


def test_an_answer_says_who_asked(harness: DeciderHarness) -> None:
    """Only they may fetch it later."""
    first = harness.send(Deposit("a", 5), idempotency_key="k", subject="somebody")
    again = harness.send(Deposit("a", 5), idempotency_key="k", subject="somebody")
    assert (first.subject, again.subject, again.replay) == ("somebody", "somebody", True)


def test_a_refusal_is_an_event_that_changes_nothing(harness: DeciderHarness) -> None:
    before = harness.digest()
    reply = harness.send(Hold("a", 5, "h"))
    assert reply.status == 409
    assert msgspec.json.decode(reply.body)["code"] == "insufficient_funds"
    [event] = harness.events
    assert (event.code, event.command) == ("insufficient_funds", "headrace.bank.Hold")
    assert set(harness.state["accounts"].items()) == set()
    assert before != harness.digest()  # the clock has moved
    assert harness.replay_digest() == harness.digest()


def test_a_timer_fires_once_and_is_an_event(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5))
    harness.send(Hold("a", 5, "h"))
    harness.advance(HOLD_MS - 1)
    assert harness.send(Hold("a", 1, "i")).status == 409
    harness.advance(1)
    assert harness.send(Hold("a", 1, "j")).status == 200
    harness.advance(10 * HOLD_MS)
    expired = [event.hold for event in harness.events if isinstance(event, HoldExpired)]
    assert expired == ["h", "j"]
    assert harness.state["accounts"]["a"] == Account(5)
    assert harness.replay_digest() == harness.digest()


def test_timers_due_before_a_command_fire_before_it(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5))
    harness.send(Hold("a", 5, "h"))
    harness._ports.now_ms += HOLD_MS  # a command comes before anybody looked at the clock
    assert harness.send(Hold("a", 5, "i")).status == 200
    assert harness.events[2:] == [HoldExpired("a", "h"), Held("a", 5, "i")]


def test_a_timer_whose_rule_fails_is_gone(harness: DeciderHarness) -> None:
    harness.send(Deposit("broken", 5))
    harness.send(Hold("broken", 5, "h"))
    harness.advance(HOLD_MS)
    assert harness.events[-1].code == "failed"
    assert harness.owner.next_timer_ms is None
    assert harness.replay_digest() == harness.digest()


@pytest.mark.parametrize("crash", [False, True])
def test_a_repeat_is_told_the_first_verdict(harness: DeciderHarness, crash: bool) -> None:
    first = harness.send(Deposit("a", 5), idempotency_key="k")
    if crash:
        harness.crash()
    again = harness.send(Deposit("a", 5), idempotency_key="k")
    assert again.replay
    assert (again.status, again.body, again.offset) == (first.status, first.body, first.offset)
    assert again.source_offset == 1
    assert harness.events[-1].code == "duplicate"
    assert harness.events[-1].original_offset == first.offset
    assert harness.state["accounts"]["a"] == Account(5)
    assert harness.replay_digest() == harness.digest()


def test_a_key_used_for_something_else_is_refused(harness: DeciderHarness) -> None:
    first = harness.send(Deposit("a", 5), idempotency_key="k")
    other = harness.send(Deposit("a", 6), idempotency_key="k")
    assert (other.status, other.replay) == (422, False)
    assert msgspec.json.decode(other.body)["code"] == "key_reused"
    assert harness.events[-1].original_offset == first.offset


def test_a_refusal_is_remembered_and_a_failure_is_not(harness: DeciderHarness) -> None:
    harness.send(Hold("a", 5, "h"), idempotency_key="k")
    harness.send(Deposit("a", 5))
    again = harness.send(Hold("a", 5, "h"), idempotency_key="k")
    assert (again.status, again.replay) == (409, True)
    harness.send(Misbehave("a", "raise"), idempotency_key="f")
    assert not harness.send(Misbehave("a", "raise"), idempotency_key="f").replay


def test_keys_expire_by_the_log(harness: DeciderHarness) -> None:
    ttl = harness.decider.idempotency_ttl_ms
    harness.send(Deposit("a", 5), idempotency_key="k")
    harness.advance(ttl - 1)
    assert harness.send(Deposit("a", 5), idempotency_key="k").replay
    harness.advance(1)
    assert not harness.send(Deposit("a", 5), idempotency_key="k").replay
    harness.advance(ttl + 1)
    harness.send(Deposit("b", 1), idempotency_key="l")
    assert [key for key, _ in harness.state["headrace:keys"].items()] == ["l"]
    assert harness.replay_digest() == harness.digest()


@pytest.mark.parametrize(
    ("how", "code", "status"),
    [
        ("raise", "failed", 500),
        ("write", "failed", 500),
        ("large", "too_large", 413),
        ("wrong", "failed", 500),
        ("foreign", "failed", 500),
        ("evolve", "failed", 500),
        ("surrogate", "odd", 409),
    ],
)
def test_whatever_a_rule_does_is_one_event(
    harness: DeciderHarness, how: str, code: str, status: int
) -> None:
    reply = harness.send(Misbehave("a", how))
    assert reply.status == status
    [event] = harness.events
    assert isinstance(event, CommandRejected)
    assert event.code == code
    assert len(harness.state["accounts"]) == 0
    assert harness.replay_digest() == harness.digest()
    assert harness.send(Deposit("a", 1)).status == 201


def test_a_reply_rule_that_fails_leaves_the_event(harness: DeciderHarness) -> None:
    reply = harness.send(Misbehave("a", "reply"))
    assert reply.status == 500
    assert msgspec.json.decode(reply.body)["code"] == "reply_failed"
    assert harness.events[0].text == "reply"


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"\0\0\0\0\x63abc", b"\0\0\0\0\1"])
def test_what_cannot_be_read_is_one_event(harness: DeciderHarness, value: bytes | None) -> None:
    reply = harness.send_raw(value, envelope=Envelope("c", "r"))
    assert reply.status == 400
    assert harness.events[0].code == "unreadable"
    assert harness.send(Deposit("a", 1)).status == 201


def test_a_crash_changes_nothing(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5))
    harness.send(Hold("a", 5, "h"))
    digest = harness.digest()
    harness.crash()
    assert harness.digest() == digest
    harness.advance(HOLD_MS)
    assert harness.events[-1] == HoldExpired("a", "h")
    assert harness.owner.tally.claims == 1


def test_commands_of_another_topic_are_not_gone_on_with(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5))
    claim = OwnershipClaimed("0" * 32, "another topic", "somebody")
    _, value = harness._codec.encode(claim)
    harness.log.append(LogRecord(b"", value, [], harness.now_ms))
    with pytest.raises(CommandsReplaced, match="another topic"):
        harness.owner.read(Slice(len(harness.log) - 1, harness.log[-1:]))


def test_an_event_that_cannot_be_folded_stops_the_reader(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5))
    event = harness.log[-1]
    harness.log[-1] = LogRecord(event.key, event.value[:-1], event.headers, event.time_ms)
    with pytest.raises(FoldFailed, match="ends early"):
        harness.replay_digest()
    harness.log[-1] = LogRecord(event.key, event.value, event.headers[:1], event.time_ms)
    with pytest.raises(FoldFailed, match="headrace-cause"):
        harness.replay_digest()


def test_headers_that_are_too_long_count_as_missing(harness: DeciderHarness) -> None:
    harness.send(Deposit("a", 5), idempotency_key="k" * 5_000)
    assert not harness.send(Deposit("a", 5), idempotency_key="k" * 5_000).replay
    reply = harness.send(Deposit("a", 5), key="k" * 5_000)
    assert reply.status == 400
    assert len(harness.log[-1].key) == 0


def test_a_foreign_decision_header_in_a_command_is_not_repeated(harness: DeciderHarness) -> None:
    envelope = Envelope("c", "r")
    value = harness._command_codec.encode(Deposit("a", 1))[1]
    headers = [("headrace-decision", b"x" * 40), ("headrace-cause", b"y"), ("other", b"z")]
    harness.commands.append(
        LogRecord(b"a", value, [*headers, *envelope_headers(envelope)], harness.now_ms)
    )
    harness.advance(0)
    assert harness.events == [Deposited("a", 1, 1)]
    names = [name for name, _ in harness.log[-1].headers]
    assert names.count("headrace-decision") == 1
    assert "other" not in names
