"""What is read and not handed over: no hole, no repeat, whatever the client gives."""

from __future__ import annotations

import pytest

from streams.runtime.lane.pending import ATTEND_S, Pending
from streams.runtime.lane.span import Seat
from tests.runtime.lane.bed import held, message

pytestmark = pytest.mark.usefixtures("either_reader")


def pending(begins: int = 10) -> Pending:
    return Pending(Seat("test.clicks", 0), begins)


def offsets(one: Pending) -> list[int]:
    return [message.offset() for message in one.messages]


def test_spans_say_where_they_begin() -> None:
    one = pending()
    assert one.take(held([message(10), message(11), message(14)]), 0.0)
    first, second = one.cut(2, 1.0), one.cut(2, 1.0)
    assert (first.begins, first.next_offset) == (10, 12)
    assert (second.begins, second.next_offset) == (12, 15)


def test_records_read_before_the_seat_began_are_not_taken_for_a_gap() -> None:
    one = pending()
    assert not one.take(held([message(50)]), 0.0)
    assert one.take(held([message(10)]), 0.0)
    assert offsets(one) == [10]


def test_a_gap_where_the_seat_begins_is_believed_when_it_is_there_again() -> None:
    one = pending()
    assert not one.take(held([message(12)]), 0.0)
    assert one.take(held([message(12)]), 0.0)
    assert offsets(one) == [12]


def test_repeats_are_left_out() -> None:
    one = pending()
    one.take(held([message(10), message(11)]), 0.0)
    assert one.take(held([message(10), message(11), message(12)]), 0.0)
    assert one.take(held([message(11)]), 0.0)
    assert offsets(one) == [10, 11, 12]


def test_a_silent_partition_is_attended_to_again_and_again() -> None:
    one = pending()
    assert not one.forgotten(one.handed + 0.9, 1.0)
    assert one.forgotten(one.handed + 1.0, 1.0)
    one.attended = one.handed + 1.0
    assert not one.forgotten(one.attended + ATTEND_S - 0.1, 1.0)
    assert one.forgotten(one.attended + ATTEND_S, 1.0)
