"""The pump: nothing is stored behind a hole, and no record is blamed for what is not its fault."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from sinks.drivers.memory import MemorySink
from streams.runtime.avro import RegistryUnavailable
from streams.runtime.kafka import LogBounds
from streams.runtime.lane import pump
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.journal import Journal, Suspect
from streams.runtime.lane.pump import FAILURES_MAX, FoldBroken, SpanLost
from streams.runtime.lane.span import Seat, Span
from streams.runtime.sink import SinkRejected
from tests.runtime.lane.bed import Bed, Keep, content, message, span, value

pytestmark = pytest.mark.usefixtures("either_reader", "either_way")


def test_spans_are_stored_in_order() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0), message(1), begins=0))
    bed.carry(span(seat, message(5), begins=2))  # a gap in the log
    assert (bed.kept(), bed.next_offset, bed.commits) == ([0, 1, 5], 6, [2, 6])


def test_a_lost_span_is_noticed() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0), begins=0))
    with pytest.raises(SpanLost):
        bed.carry(span(seat, message(2), begins=2))
    assert bed.next_offset == 1
    assert seat.revoked


def test_after_an_error_nothing_is_stored_behind_the_hole() -> None:
    bed = Bed(fold=Keep({"bad": LogMismatch("stop")}))
    seat = bed.seat()
    with pytest.raises(LogMismatch):
        bed.carry(span(seat, message(0, value("x", "bad"))))
    bed.carry(span(seat, message(1)))
    assert (bed.kept(), bed.next_offset) == ([], 0)


def test_a_stop_during_retries_ends_the_seat() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.store.refuse(10**6)
    threading.Timer(0.1, bed.stopping.set).start()
    bed.carry(span(seat, message(0)))
    assert seat.revoked
    bed.stopping.clear()
    bed.store.heal()
    bed.carry(span(seat, message(1)))
    assert (bed.kept(), bed.next_offset) == ([], 0)


def test_nothing_new_begins_while_stopping() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.stopping.set()
    bed.carry(span(seat, message(0)))
    assert seat.revoked
    assert bed.fold.seen == []


def test_a_revoke_during_retries_drops_the_span() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.store.refuse(10**6)
    threading.Timer(0.1, lambda: setattr(seat, "revoked", True)).start()
    bed.carry(span(seat, message(0)))
    bed.store.heal()
    assert bed.next_offset == 0


def test_a_refused_write_starts_over_from_the_store() -> None:
    bed = Bed()
    seat = bed.seat()
    other = bed.another(MemorySink(bed.projection.model, bed.store))
    theirs = Seat("test.clicks", 0)
    other.locate(theirs)
    other.process(span(theirs, message(0), message(1), message(2)))
    bed.carry(span(seat, message(0), message(1)))
    ((old, fresh, offset),) = bed.restarts
    assert (old, old.revoked, fresh.revoked, offset) == (seat, True, False, 3)
    bed.carry(span(seat, message(2)))  # still queued under the old seat
    bed.carry(span(fresh, message(3), begins=3))
    assert (bed.kept(), bed.next_offset) == ([0, 1, 2, 3], 4)


def test_a_lost_reply_is_recognised_as_our_own_write() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.store.lose_replies(1)
    bed.carry(span(seat, message(0)))
    bed.carry(span(seat, message(1)))
    assert (bed.kept(), bed.restarts) == ([0, 1], [])


def test_an_idle_partition_notices_an_emptied_store() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0)))
    bed.carry(Span(seat, idle=True))
    assert bed.restarts == []
    bed.store.models.clear()
    bed.carry(Span(seat, idle=True))
    assert [offset for _, _, offset in bed.restarts] == [0]


@pytest.mark.parametrize(
    "error", [ValueError("bad"), pl.exceptions.PanicException("bad"), RecursionError("deep")]
)
def test_a_record_that_the_fold_cannot_take_is_set_aside(error: BaseException) -> None:
    bed = Bed(fold=Keep({"bad": error}))
    bed.outbox.failures = 2
    seat = bed.seat()
    records = [message(n, value("x", "bad") if n == 5 else None) for n in range(9)]
    bed.carry(span(seat, *records, begins=0))
    assert bed.kept() == [0, 1, 2, 3, 4, 6, 7, 8]
    (letter,) = bed.outbox.letters
    assert content(letter.message) == content(records[5])
    assert dict(letter.headers)["__connect.errors.exception.class.name"] == type(error).__qualname__
    position = bed.sink.load(1, "test.clicks", 0)
    assert position is not None
    assert position.counts == {"applied": 8, "quarantined": 1}


def test_a_broken_fold_stops_before_it_empties_the_log_into_the_dead_letters() -> None:
    bed = Bed(fold=Keep({"c": ValueError("a bug")}))
    seat = bed.seat()
    with pytest.raises(FoldBroken):
        bed.carry(span(seat, *map(message, range(2 * FAILURES_MAX))))
    assert len(bed.outbox.letters) == FAILURES_MAX
    bed.carry(span(seat, message(2 * FAILURES_MAX)))
    assert bed.next_offset == FAILURES_MAX


def test_a_store_that_refuses_everything_is_not_the_records_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0)))
    write, refusals = bed.sink.write, iter(range(4))

    def refuse(version: int, one: Any) -> None:
        if next(refusals, None) is not None:
            raise SinkRejected("WRONGPASS")
        write(version, one)

    monkeypatch.setattr(bed.sink, "write", refuse)
    bed.carry(span(seat, message(1), message(2)))
    assert (bed.kept(), bed.outbox.letters) == ([0, 1, 2], [])


def test_a_record_that_the_store_refuses_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    seat = bed.seat()
    write = bed.sink.write

    def refuse(version: int, one: Any) -> None:
        if any((change.rows["offset"] == 1).any() for change in one.changes):
            raise SinkRejected("not this one")
        write(version, one)

    monkeypatch.setattr(bed.sink, "write", refuse)
    bed.carry(span(seat, message(0), message(1), message(2)))
    assert bed.kept() == [0, 2]
    assert [letter.message.offset() for letter in bed.outbox.letters] == [1]


def test_a_registry_that_is_down_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    bed = Bed()
    seat = bed.seat()
    decode, outages = bed.pump._decoder.decode, iter(range(3))

    def down(values: Any) -> Any:
        if next(outages, None) is not None:
            raise RegistryUnavailable("down")
        return decode(values)

    monkeypatch.setattr(bed.pump._decoder, "decode", down)
    bed.carry(span(seat, message(0)))
    assert (bed.kept(), bed.outbox.letters) == ([0], [])


def test_records_without_append_time_are_not_ahead_of_the_log() -> None:
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0, timestamp=(0, -1)), message(1, timestamp=(0, -1))))
    assert (bed.kept(), bed.outbox.letters) == ([0, 1], [])


def test_a_record_ahead_of_the_log_is_set_aside() -> None:
    bed = Bed()
    seat = bed.seat()
    ahead = message(1, value("x", at=2_000 + 10**9 + 1))
    bed.carry(span(seat, message(0), ahead, message(2)))
    assert bed.kept() == [0, 2]
    assert [letter.message for letter in bed.outbox.letters] == [ahead]


def test_another_topic_under_the_same_name_stops() -> None:
    bed = Bed()
    bed.carry(span(bed.seat(), message(0)))
    bed.bounds = replace(bed.bounds, topic_id="id-2")
    with pytest.raises(LogMismatch, match="re-created"):
        bed.seat()


@pytest.mark.parametrize("idle", [False, True])
def test_a_topic_that_is_made_again_under_a_lane_stops_it(
    monkeypatch: pytest.MonkeyPatch, idle: bool
) -> None:
    """A consumer reads on as if nothing had happened, or hears nothing; neither may last."""
    monkeypatch.setattr(pump, "LOOK_S", 0.0)
    bed = Bed()
    seat = bed.seat()
    bed.carry(span(seat, message(0)))
    bed.bounds = replace(bed.bounds, topic_id="id-2")
    with pytest.raises(LogMismatch, match="re-created"):
        bed.carry(Span(seat, idle=True) if idle else span(seat, message(1)))
    assert bed.kept() == [0]
    assert seat.revoked


def test_a_position_that_moves_while_the_broker_is_asked_is_no_lost_tail() -> None:
    """Another owner wrote between the two looks: what is old then is the look, not the log."""
    bed = Bed()
    bed.bounds = replace(bed.bounds, end=3)
    other = bed.seat()
    bed.carry(span(other, *map(message, range(3))))
    asked = []

    def ask(_: Seat) -> LogBounds:
        asked.append(bed.bounds)
        if len(asked) == 1:  # an answer that is old by the time it is used
            old = replace(bed.bounds, end=2)
            bed.bounds = replace(bed.bounds, end=9)
            bed.carry(span(other, *map(message, range(3, 9))))
            return old
        return bed.bounds

    heir = bed.another(bed.sink, bounds=ask)
    assert heir.locate(Seat("test.clicks", 0)) == 9
    assert len(asked) == 2


def test_a_lost_tail_stops() -> None:
    bed = Bed()
    bed.carry(span(bed.seat(), *map(message, range(3))))
    bed.bounds = replace(bed.bounds, end=2)
    with pytest.raises(LogMismatch, match="its tail was lost"):
        bed.seat()


def test_another_number_of_partitions_stops() -> None:
    bed = Bed()
    bed.bounds = replace(bed.bounds, partitions=2)
    with pytest.raises(LogMismatch, match="has 2 partitions, the catalogue says 1"):
        bed.seat()


def test_suspects_are_worked_on_alone_and_the_guilty_one_is_set_aside(tmp_path: Path) -> None:
    bed = Bed(journal=tmp_path / "one.journal")
    assert bed.journal is not None
    bed.journal.suspects = [
        Suspect("test.clicks", 0, 2, 5),
        Suspect("test.clicks", 0, 7, 8, deaths=2),
    ]
    seat = bed.seat()
    bed.carry(span(seat, *map(message, range(10))))
    assert bed.fold.seen == [(0, 1), (2,), (3,), (4,), (5, 6), (), (8, 9)]
    assert bed.kept() == [0, 1, 2, 3, 4, 5, 6, 8, 9]
    assert [letter.message.offset() for letter in bed.outbox.letters] == [7]
    assert bed.journal.suspects == [], "nothing is open, so no replay can meet them"
    bed.journal.close()


def test_an_outage_of_the_store_leaves_no_note(tmp_path: Path) -> None:
    bed = Bed(journal=tmp_path / "one.journal")
    seat = bed.seat()
    bed.store.refuse(10**6)
    threading.Timer(0.1, bed.stopping.set).start()
    bed.carry(span(seat, message(0)))
    assert Journal(tmp_path / "one.journal").suspects == []
