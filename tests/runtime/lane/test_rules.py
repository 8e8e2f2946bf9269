"""Reader rules in the lane: who may write is decided by the log, and every record has a fate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.decider.filter import BrokenChain
from streams.runtime.decider.wire import DECISION, Decision
from streams.runtime.derivation.wire import HEARTBEAT
from streams.runtime.kafka import LogBounds
from streams.runtime.lane import store
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.position import NO_WATERMARK, FilterState, Position, SourceState, applied
from streams.runtime.sink import Write
from streams.runtime.step import Memory
from streams.runtime.topic import Topic
from streams.runtime.window import tumbling
from tests.runtime.clicks import TABLE as WINDOWS
from tests.runtime.clicks import ClickFold, spec
from tests.runtime.lane.bed import Bed, message, span, value
from tests.runtime.lane.ruled import (
    DERIVED,
    EVENTS,
    NONCES,
    SEEN,
    See,
    claim,
    derived,
    event,
)

pytestmark = pytest.mark.usefixtures("either_reader", "either_way")

A, B = NONCES[:2]


def bed(of: Topic) -> Bed:
    return Bed(fold=See(), of=of, table=SEEN)


def fold(of: Topic, log: Sequence[Message], cuts: Sequence[int] = ()) -> Bed:
    """Fold a log, with a restart at each cut."""
    one = bed(of)
    for first, stop in zip([0, *cuts], [*cuts, len(log)], strict=True):
        if first < stop:
            one.carry(span(one.seat(), *log[first:stop]))
    return one


def seen(one: Bed) -> list[tuple[Any, ...]]:
    frames = list(one.sink.rows(1, "seen"))
    columns = ["offset", "kind", "watermark_ms"]
    return sorted(pl.concat(frames).select(columns).rows()) if frames else []


ZOMBIE = [
    claim(0, A),
    event(1, 0, A, 0, 0, at=100),
    event(2, 0, A, 1, 1, rejected=True),
    event(3, 0, A, 3, 3, at=900),  # behind a lost one
    claim(4, B),
    event(5, 0, A, 2, 2, at=900),  # of the deposed writer
    event(6, 4, B, 2, 2, at=200),
    message(7),  # by nobody who may
    event(8, 4, B, 2, 2, at=900),  # again
    event(9, 4, B, 3, 3, at=300),
]


def test_what_the_rule_refuses_reaches_no_fold_and_no_watermark() -> None:
    one = fold(EVENTS, ZOMBIE)
    assert seen(one) == [
        (1, "Clicked", NO_WATERMARK),
        (2, "CommandRejected", 99),
        (6, "Clicked", 99),
        (9, "Clicked", 199),
    ]
    position = one.position
    assert position.counts == {"applied": 4, "control": 2, "stale": 4}
    assert (position.next_offset, position.watermark_ms) == (10, 299)
    assert position.filter_next == FilterState(4, B, 3, 3)
    assert one.stale() == {"epoch": 1, "seq": 2, "foreign": 1}
    assert one.outbox.letters == []


@pytest.mark.parametrize("cut", range(len(ZOMBIE)))
def test_a_restart_changes_nothing(cut: int) -> None:
    whole, cut_up = fold(EVENTS, ZOMBIE), fold(EVENTS, ZOMBIE, [cut])
    assert seen(cut_up) == seen(whole)
    assert cut_up.position == whole.position


def test_a_read_model_of_events_tells_which_commands_are_applied() -> None:
    positions = {("test.clicks", 0): fold(EVENTS, ZOMBIE).position}
    assert applied(positions, EVENTS) == {
        ("test.clicks", 0): 10,
        ("test.commands", 0): 4,
    }
    assert applied(positions, DERIVED) == {("test.clicks", 0): 10}


def test_a_record_set_aside_keeps_its_place_in_the_chain() -> None:
    """Else every event after it would be refused."""
    log = [
        claim(0, A),
        event(1, 0, A, 0, 0),
        event(2, 0, A, 1, 1, content=value("x", "poison")),
        event(3, 0, A, 2, 2, content=b"\0\0\0\0\1bad"),
        event(4, 0, A, 3, 3),
    ]
    one = fold(EVENTS, log)
    assert [offset for offset, *_ in seen(one)] == [1, 4]
    assert one.position.counts == {"applied": 2, "control": 1, "quarantined": 2}
    assert one.position.filter_next == FilterState(0, A, 3, 3)


def test_what_is_refused_and_unreadable_is_stale_and_no_letter() -> None:
    one = fold(EVENTS, [claim(0, A), event(1, 9, B, 0, 0, content=b"bad"), message(2, b"")])
    assert one.position.counts == {"control": 1, "stale": 2}
    assert one.outbox.letters == []


def test_a_command_answered_twice_stops_the_lane() -> None:
    one = bed(EVENTS)
    seat = one.seat()
    log = [claim(0, A), event(1, 0, A, 0, 5), event(2, 0, A, 1, 5)]
    with pytest.raises(BrokenChain):
        one.carry(span(seat, *log))
    assert seat.revoked
    assert one.next_offset == 0
    assert one.outbox.letters == []


@pytest.mark.parametrize("of", [EVENTS, DERIVED])
def test_a_reader_without_state_begins_at_the_start_of_a_whole_log(of: Topic) -> None:
    one = bed(of)
    one.bounds = LogBounds("id-1", 5, 10, 1)
    with pytest.raises(LogMismatch, match="from offset 0"):
        one.seat()
    plain = bed(Bed().projection.topic)
    plain.bounds = one.bounds
    plain.seat()
    assert plain.next_offset == 0


@pytest.mark.parametrize("of", [EVENTS, DERIVED])
def test_a_position_without_state_is_no_base(of: Topic) -> None:
    one = bed(of)
    one.sink.prepare(1)
    one.sink.write(1, Write("test.clicks", 0, None, Position("id-1", 3, 3)))
    with pytest.raises(LogMismatch, match="without the reader rule"):
        one.seat()


CHAIN = [
    derived(0, (0, 0), watermark_ms=10, partitions=2),
    derived(1, (4, 0), partition=1, partitions=2, watermark_ms=70),
    derived(2, (5, 0), (4, 0), partition=1, partitions=2, watermark_ms=80, time_ms=10**6),
    derived(3, (2, 0), (1, 0), partitions=2, watermark_ms=50),  # (1, 0) was lost
    derived(4, (0, 0), partitions=2, watermark_ms=10),  # a new run
    derived(5, (1, 0), (0, 0), partitions=2, watermark_ms=30),
    message(6),
    derived(7, (3, HEARTBEAT), (1, 0), partitions=2, watermark_ms=60),
    derived(8, (6, HEARTBEAT), (9, 9), partition=1, partitions=2, watermark_ms=99),
    derived(9, (4, 0), (3, HEARTBEAT), partitions=2, watermark_ms=65),
]


def test_a_derived_topic_is_told_its_watermark() -> None:
    one = fold(DERIVED, CHAIN)
    assert seen(one) == [
        (0, "Clicked", NO_WATERMARK),
        (1, "Clicked", NO_WATERMARK),
        (2, "Clicked", 10),
        (5, "Clicked", 10),
        (9, "Clicked", 60),
    ]
    position = one.position
    assert position.counts == {"applied": 5, "control": 2, "stale": 3}
    assert one.stale() == {"hole": 1, "repeat": 1, "foreign": 1}
    assert position.watermark_ms == 65
    source = "aa" * 8
    assert position.filter_next is not None
    assert position.filter_next.sources == {
        f"{source}/0": SourceState(4, 0, 65, 2),
        f"{source}/1": SourceState(5, 0, 80, 2),
    }
    assert Position.decode(position.encode()) == position


@pytest.mark.parametrize("cut", range(len(CHAIN)))
def test_a_restart_on_a_derived_topic_changes_nothing(cut: int) -> None:
    whole, cut_up = fold(DERIVED, CHAIN), fold(DERIVED, CHAIN, [cut])
    assert seen(cut_up) == seen(whole)
    assert cut_up.position == whole.position


def test_a_derived_record_set_aside_keeps_its_place_in_the_chain() -> None:
    bad = derived(1, (1, 0), (0, 0))
    bad = message(1, b"bad", headers=bad.headers())
    one = fold(DERIVED, [derived(0, (0, 0)), bad, derived(2, (2, 0), (1, 0))])
    assert [offset for offset, *_ in seen(one)] == [0, 2]
    assert one.position.counts == {"applied": 2, "quarantined": 1}


def windows(cut: int | None) -> tuple[list[tuple[Any, ...]], Bed]:
    """Windows of 100 ms, final 100 ms after their end, over a derived chain; restarted at `cut`."""
    rules = ClickFold(tumbling(spec(allowed_lateness_ms=100), 100))
    one = Bed(fold=rules, of=DERIVED, table=WINDOWS)
    log = [
        derived(n, (n, 0), (n - 1, 0) if n else (-1, -1), watermark_ms=30 * n, time_ms=30 * n)
        for n in range(20)
    ]
    stops = [len(log)] if cut is None else [cut, len(log)]
    first = 0
    for stop in stops:
        seat = one.seat()
        for n in range(min(first, seat.memory.now.offset), stop, 3):
            one.carry(span(seat, *log[n : min(n + 3, stop)]))
        first = stop
    return sorted(pl.concat(list(one.sink.rows(1, "windows"))).rows()), one


def test_a_replay_goes_by_the_rule_as_it_was_at_low() -> None:
    whole, _ = windows(None)
    assert len(whole) == 6
    found, one = windows(12)
    assert found == whole
    assert one.position.counts == {"applied": 20}


def test_a_replay_by_the_rule_as_it_is_at_next_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counterexample 14: the replay would drop every row as a repeat."""
    real = store.restore

    def restore(*given: Any, **more: Any) -> Memory:
        memory = real(*given, **more)
        now = replace(memory.now, filter=memory.position.filter_next)
        return replace(memory, now=now)

    whole, _ = windows(None)
    monkeypatch.setattr(store, "restore", restore)
    found, _ = windows(12)
    assert found != whole


@st.composite
def contested(draw: st.DrawFn) -> list[Message]:
    """A log that several writers contend for; some of their events are lost."""
    log: list[Message] = []
    writers: list[list[Any]] = []
    for offset in range(draw(st.integers(1, 30))):
        if not writers or draw(st.integers(0, 5)) == 0:
            writers.append([offset, draw(st.sampled_from(NONCES)), None])
            log.append(claim(offset, writers[-1][1]))
            continue
        writer = draw(st.sampled_from(writers))
        seq = len(log) if writer[2] is None else writer[2] + 1
        seq += draw(st.sampled_from([0, 0, 0, 1]))
        writer[2] = seq
        at = draw(st.integers(0, 2_000))
        log.append(event(offset, writer[0], writer[1], seq, seq, at=at))
    return _renumbered(log)


def _renumbered(log: list[Message]) -> list[Message]:
    """Give the events of the current epoch the numbers that follow, as a writer that reads does."""
    current, seq, result = (-1, ""), -1, []
    for one in log:
        headers = one.headers() or []
        if not headers:
            current = (one.offset(), _nonce(one))
            result.append(one)
            continue
        decision = Decision.unpack(headers[0][1])
        if (decision.claim_offset, decision.nonce) == current and decision.seq % 4:
            seq += 1
            fresh = Decision(*current, seq, seq)
            signed = [(DECISION, fresh.pack())]
            result.append(message(one.offset(), one.value(), headers=signed))
        else:
            result.append(one)
    return result


def _nonce(one: Message) -> str:
    raw = one.value()
    assert raw is not None
    return next(nonce for nonce in NONCES if nonce.encode() in raw)


@settings(max_examples=60, deadline=None)
@given(contested(), st.data())
def test_any_cut_of_a_contested_log_reads_the_same(log: list[Message], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4)))
    whole, cut_up = fold(EVENTS, log), fold(EVENTS, log, cuts)
    assert seen(cut_up) == seen(whole)
    assert cut_up.position == whole.position
    assert sum(whole.position.counts.values()) == len(log)
