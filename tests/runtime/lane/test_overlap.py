"""The fold runs ahead of the store by a span; what is stored is what the pump alone stores."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.drivers.memory import MemorySink
from streams.runtime.lane import patience
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.overlap import Overlap
from streams.runtime.lane.span import Seat, Span
from streams.runtime.sink import Write
from tests.runtime.lane.bed import Bed, Keep, message, span, value

RECORDS = 40
BAD = {"bad": ValueError("bad")}


class Gate:
    """Holds the writes of a sink until it is opened."""

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        write = bed.sink.write

        def held(version: int, one: Write) -> None:
            self.reached.set()
            assert self.open.wait(20)
            write(version, one)

        monkeypatch.setattr(bed.sink, "write", held)


class Counted:
    """How many spans were done, and what failed."""

    def __init__(self) -> None:
        self.dones = 0
        self.errors: list[BaseException] = []

    def done(self) -> None:
        self.dones += 1


@contextmanager
def overlapped(bed: Bed) -> Iterator[tuple[Overlap, Counted]]:
    counted = Counted()
    overlap = Overlap(bed.pump, counted.done, counted.errors.append)
    try:
        yield overlap, counted
    finally:
        bed.stopping.set()
        overlap.close()


def eventually(happens: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(4_000):
        if happens():
            return
        waited.wait(0.005)
    raise AssertionError("never")


def test_the_next_span_is_folded_while_the_write_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    seat, gate = bed.seat(), Gate(bed, monkeypatch)
    with overlapped(bed) as (overlap, counted):
        overlap.take(span(seat, message(0), begins=0)).result(20)
        assert gate.reached.wait(20)
        second = overlap.take(span(seat, message(1), begins=1))
        eventually(lambda: bed.fold.seen == [(0,), (1,)])
        assert (bed.kept(), counted.dones, second.done()) == ([], 0, False)
        gate.open.set()
        overlap.wait()
        assert (bed.kept(), bed.commits, counted.dones) == ([0, 1], [1, 2], 2)


def test_the_last_write_is_seen_to_without_another_span() -> None:
    bed = Bed()
    with overlapped(bed) as (overlap, counted):
        overlap.take(span(bed.seat(), message(0), begins=0)).result(20)
        eventually(lambda: (bed.commits, counted.dones) == ([1], 1))


def test_what_was_folded_on_a_failed_write_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer has moved the position: both spans are dropped, and read again."""
    bed = Bed()
    seat, gate = bed.seat(), Gate(bed, monkeypatch)
    other = bed.another(MemorySink(bed.projection.model, bed.store))
    theirs = Seat("test.clicks", 0)
    other.locate(theirs)
    with overlapped(bed) as (overlap, counted):
        overlap.take(span(seat, message(0), message(1), begins=0)).result(20)
        assert gate.reached.wait(20)
        other.process(span(theirs, message(0), begins=0))
        overlap.take(span(seat, message(2), begins=2))
        gate.open.set()
        overlap.wait()
        ((old, fresh, offset),) = bed.restarts
        assert (old, seat.revoked, offset, bed.kept()) == (seat, True, 1, [0])
        overlap.take(span(fresh, message(1), message(2), begins=1))
        overlap.wait()
        assert (bed.kept(), counted.dones) == ([0, 1, 2], 3)


def test_an_error_that_ends_the_lane_is_told_although_no_span_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed, error = Bed(), LogMismatch("the topic was re-created")
    seat, gate = bed.seat(), Gate(bed, monkeypatch)

    def refuse(*_: Any) -> None:
        raise error

    monkeypatch.setattr(bed.sink, "write", refuse)
    with overlapped(bed) as (overlap, counted):
        overlap.take(span(seat, message(0), begins=0)).result(20)
        eventually(lambda: counted.errors == [error])
        assert (seat.revoked, counted.dones, gate.reached.is_set()) == (True, 1, False)
        overlap.take(span(seat, message(1), begins=1)).result(20)
        assert (bed.kept(), counted.dones) == ([], 2)


def test_closing_lets_go_of_a_store_that_is_down() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.store.refuse(10**9)
    with overlapped(bed) as (overlap, counted):
        overlap.take(span(seat, message(0), begins=0))
        overlap.take(span(seat, message(1), begins=1))
    assert (seat.revoked, counted.dones, counted.errors) == (True, 2, [])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32), bad=st.sets(st.integers(0, RECORDS - 1), max_size=3))
def test_whatever_fails_meanwhile_every_record_is_stored_once(
    seed: int, bad: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "BACKOFF_MS_FIRST", 1)
    chance, bed = random.Random(seed), Bed(fold=Keep(BAD))
    log = [message(n, value("x", "bad") if n in bad else None) for n in range(RECORDS)]
    other = bed.another(MemorySink(bed.projection.model, bed.store))
    seat, at, taken = bed.seat(), 0, 0
    with overlapped(bed) as (overlap, counted):
        while at < RECORDS or bed.next_offset < RECORDS:
            break_something(bed, other, log, chance)
            stop = min(RECORDS, at + chance.randrange(1, 6))
            idle = at == RECORDS or chance.random() < 0.1
            overlap.take(Span(seat, idle=True) if idle else span(seat, *log[at:stop], begins=at))
            taken, at = taken + 1, at if idle else stop
            if at == RECORDS:
                overlap.wait()
            while bed.restarts:
                old, fresh, offset = bed.restarts.pop(0)
                if old is seat:  # not the other writer's
                    seat, at = fresh, offset
        overlap.wait()
        assert (counted.dones, counted.errors) == (taken, [])
    assert bed.kept() == [n for n in range(RECORDS) if n not in bad]
    assert bed.position.counts == {
        fate: rows for fate, rows in (("applied", RECORDS - len(bad)), ("quarantined", len(bad)))
        if rows
    }  # fmt: skip
    assert {letter.message.offset() for letter in bed.outbox.letters} == bad


def break_something(bed: Bed, other: Any, log: list[Any], chance: random.Random) -> None:
    """A lost reply, a refused connection, another writer that comes first, or nothing."""
    dice = chance.random()
    if dice < 0.15:
        bed.store.lose_replies(1)
    elif dice < 0.3:
        bed.store.refuse(chance.randrange(1, 3))
    elif dice < 0.4:
        theirs = Seat("test.clicks", 0)
        at = other.locate(theirs)
        if rows := log[at : at + chance.randrange(1, 4)]:
            other.process(span(theirs, *rows))
