"""What a task's headers say, and what nobody may make them say."""

from __future__ import annotations

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from infra.dlq.letters import Letter, Source
from streams.runtime.dead_letters import connect_headers
from streams.runtime.reactor.core import due_at
from streams.runtime.reactor.wire import REDRIVES, Journey, own_headers

NUMBERS = st.integers(0, 10**17)


def message(headers, topic="r.retry.5s"):
    return Message(
        topic=topic, partition=3, offset=7, timestamp=(2, 50), headers=headers, value=b"v"
    )


@given(st.text(), NUMBERS, NUMBERS, NUMBERS, st.integers(1, 100), NUMBERS, NUMBERS, st.text())
def test_a_journey_survives_its_headers(topic, partition, offset, time, attempt, due, after, why):
    journey = Journey(topic, partition, offset, time, attempt, due, after, why)
    assert Journey.of(message(journey.headers()), retried=True) == journey


def test_on_the_source_topic_these_headers_mean_nothing():
    forged = Journey("other", 9, 9, 9, attempt=4, due_ms=2**60).headers()
    assert Journey.of(message(forged, "s"), retried=False) == Journey("s", 3, 7, 50)


def test_headers_that_say_nothing_readable_leave_the_record_where_it_is():
    odd = [("headrace.retry.offset", b"-5"), ("headrace.retry.attempt", "²".encode())]
    odd += [("headrace.retry.due_ms", b"9" * 30), ("headrace.retry.partition", None)]
    assert Journey.of(message(odd), retried=True) == Journey("r.retry.5s", 3, 7, 50)
    assert Journey.of(message(None), retried=True) == Journey("r.retry.5s", 3, 7, 50)


def test_the_last_header_of_a_name_counts_and_own_headers_are_the_others():
    ours = Journey("s", 1, 2, 3).headers()
    later = Journey("s", 1, 2, 3, attempt=2).headers()
    headers = [("traceparent", b"x"), *ours, *later, (REDRIVES, b"2")]
    assert Journey.of(message(headers), retried=True).attempt == 2
    assert Journey.of(message(headers), retried=True).redrives == 2
    assert own_headers(headers) == [("traceparent", b"x"), (REDRIVES, b"2")]


def test_nobody_holds_a_retry_partition_for_longer_than_its_delay():
    assert due_at(Journey("s", 0, 0, 0, due_ms=2**60), 1_000, 5_000, 0.2) == 7_000
    assert due_at(Journey("s", 0, 0, 0, due_ms=5_500), 1_000, 5_000, 0.2) == 5_500


def test_a_letter_that_is_sent_again_begins_anew_under_the_same_id():
    journey = Journey("s", 1, 2, 3, attempt=5, due_ms=9, not_before_ms=9, reason="busy")
    about = connect_headers(("s", 1, 2), agent="r", reason="busy", error=None)
    headers = [("own", b"x"), *journey.headers(), *((n, v.encode()) for n, v in about)]
    letter = Letter.of(message(headers, "s.dlq"))
    assert (letter.source, letter.agent) == (Source("s", 1, 2), "r")
    sent = Journey.of(message(letter.retry_headers()), retried=True)
    assert sent == Journey("s", 1, 2, 3, reason="redriven", redrives=1)
    assert ("own", b"x") in letter.retry_headers()
