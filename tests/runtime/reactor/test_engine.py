"""The engine without Kafka: the reader rule, what is written when, revokes, faults of handlers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import Message, TopicPartition
from prometheus_client import CollectorRegistry

from streams.runtime.decider.records import CONTROL_RECORDS, OwnershipClaimed
from streams.runtime.decider.wire import CAUSE as CAUSE_HEADER
from streams.runtime.decider.wire import DECISION, Cause, Decision
from streams.runtime.derivation.wire import NONE, Source
from streams.runtime.derivation.wire import SOURCE as SOURCE_HEADER
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.span import Seat, Span
from streams.runtime.metrics import Metrics
from streams.runtime.position import FilterState
from streams.runtime.reactor.core import Core
from streams.runtime.reactor.engine import SENDS_MAX, Engine, Ledger
from streams.runtime.reactor.metrics import ReactorMetrics
from streams.runtime.reactor.offsets import Commit, Offsets
from streams.runtime.reactor.outlet import Outgoing, Unsendable
from streams.runtime.reactor.records import Reading
from streams.runtime.reactor.rules import GiveUp, Limits, Retry, Route
from streams.runtime.reactor.service import start_of
from tests.runtime.reactor.asking import Asked, reactor

SOURCE, FIRST = "run.asked", "run-asker.retry.300ms"
ASKED, CLAIMED = "headrace.test.Asked", "headrace.OwnershipClaimed"


@dataclass
class Out:
    """Keeps what is sent; holds it back or refuses it as told."""

    sent: list[Outgoing] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    refuse: str = ""

    def __post_init__(self):
        self.open.set()

    async def send(self, record):
        await self.open.wait()
        if record.topic == self.refuse:
            raise Unsendable(f"{record.topic}: too large")
        self.sent.append(record)

    def topics(self):
        return [record.topic for record in self.sent]


class Fixed:
    """Readings by offset instead of a decoder."""

    def __init__(self):
        self.readings = {}

    async def read(self, span):
        return [self.readings[message.offset()] for message in span.messages]


@dataclass
class Handler:
    result: object = "ok"
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    stubborn: bool = False
    acted: list[str] = field(default_factory=list)
    gives_up: object = "gave up"

    def route(self, record, row):
        if row.target == "broken":
            raise KeyError("broken")
        return None if record != ASKED else Route(target=row.target)

    async def act(self, task):
        self.acted.append(task.id)
        if task.row.target == "hang":
            while True:
                try:
                    await self.hold.wait()
                    break
                except asyncio.CancelledError:
                    if not self.stubborn:
                        raise
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def gave_up(self, task, reason):
        if isinstance(self.gives_up, BaseException):
            raise self.gives_up
        return self.gives_up


class Bed:
    def __init__(self, *, decided=False, derived=False, **more):
        self.reactor = reactor("run", "http://unused", **more)
        if derived:
            topic = replace(self.reactor.topic, derived_from=("run.events",))
            self.reactor = replace(self.reactor, topic=topic)
        if decided:
            topic = replace(self.reactor.topic, decides="run.commands")
            topic = replace(topic, records=(*topic.records, *CONTROL_RECORDS))
            self.reactor = replace(self.reactor, topic=topic)
        self.out, self.handler, self.records = Out(), Handler(), Fixed()
        self.failures = []
        self.metrics = Metrics(CollectorRegistry())
        self.engine = Engine(
            self.reactor,
            self.handler,
            self.records,
            self.out,
            self.encode,
            Core(self.reactor, lambda: 0.0),
            ReactorMetrics(self.metrics, self.reactor, "run"),
            now_ms=lambda: 1_000,
            failed=self.failures.append,
        )

    def encode(self, row):
        if row == "bad row":
            raise ValueError("bad row")
        return b"k", str(row).encode()

    def seat(self, topic=SOURCE, start=0, state=None):
        seat = Seat(topic, 0)
        seat.memory = Ledger(Offsets(start, state=state), "id")
        return seat

    async def take(self, seat, first, *rows, headers=None):
        messages = []
        for offset, row in enumerate(rows, first):
            name = CLAIMED if isinstance(row, OwnershipClaimed) else ASKED
            self.records.readings[offset] = row if isinstance(row, Reading) else Reading(name, row)
            given = (headers or {}).get(offset, [("trace", b"t")])
            messages.append(
                Message(
                    topic=seat.topic, partition=0, offset=offset, key=b"k", value=b"v",
                    timestamp=(2, 500), headers=given,
                )
            )  # fmt: skip
        await asyncio.wait_for(self.engine.take(Span(seat, messages)), 5)
        await turns()
        assert self.failures == []


async def turns():
    for _ in range(20):
        await asyncio.sleep(0)


def event(claim, nonce, seq, source, timer=""):
    return [
        (DECISION, Decision(claim, nonce, seq, source).pack()),
        (CAUSE_HEADER, Cause(5, timer).pack()),
    ]


async def test_a_decision_of_a_deposed_writer_leads_to_no_call():
    bed, old, new = Bed(decided=True), "0" * 32, "f" * 32
    seat, row = bed.seat(), Asked("q", "t")
    claims = [OwnershipClaimed(nonce, "id", "w") for nonce in (old, new)]
    rows = [claims[0], row, row, claims[1], row, row, row, row]
    headers = {
        1: event(0, old, 0, 10),
        2: event(0, old, 2, 12),  # behind a hole
        4: event(0, old, 1, 11),  # of the epoch before
        5: event(3, new, 1, 11),
        6: [("trace", b"t")],  # of no epoch at all
        7: event(3, new, 2, 11, timer="t1"),
    }
    await bed.take(seat, 0, *rows, headers=headers)
    assert bed.handler.acted == ["run.asked/0/1", "run.asked/0/5", "run.asked/0/7"]
    assert seat.memory.offsets.low == 8
    assert seat.memory.offsets.filter == FilterState(3, new, 2, 11)


async def test_the_rule_goes_on_from_the_commit_after_a_restart():
    bed, nonce = Bed(decided=True), "a" * 32
    bed.handler.result = "ok"
    seat = bed.seat(start=1, state=FilterState(0, nonce, -1, -1))
    rows = [Asked("q0", "hang"), Asked("q1", "t"), Asked("q2", "t")]
    headers = {offset: event(0, nonce, offset - 1, offset) for offset in (1, 2, 3)}
    await bed.take(seat, 1, *rows, headers=headers)
    commit = Commit.of(seat.memory.offsets, "id")
    assert (commit.offset, commit.done) == (1, ((2, 4),))
    assert commit.filter == FilterState(0, nonce, -1, -1)
    again = Bed(decided=True)
    read = Commit.read(commit.offset, commit.metadata())
    seat = again.seat()
    seat.memory = Ledger(Offsets(read.offset, read.done, read.filter), "id")
    await again.take(seat, 1, *(Asked(f"q{n}", "t") for n in range(3)), headers=headers)
    assert again.handler.acted == ["run.asked/0/1"]
    assert seat.memory.offsets.low == 4
    assert seat.memory.offsets.filter == FilterState(0, nonce, 2, 3)
    await bed.engine.leave([seat], 0)
    bed.handler.hold.set()
    await turns()


def derived(offset, index=0, prev=NONE):
    return [(SOURCE_HEADER, Source("ab" * 8, 2, 4, offset, index, *prev, 1_700_000_000_000).pack())]


async def test_what_a_derivation_sends_again_leads_to_no_second_call():
    bed = Bed(derived=True)
    seat, row = bed.seat(), Asked("q", "t")
    headers = {
        0: derived(5),
        1: derived(5, 1, (5, 0)),
        2: derived(5),  # a new run begins where the one before was not sure
        3: derived(5, 1, (5, 0)),
        4: derived(7, 0, (5, 1)),
        5: derived(9, 0, (8, 0)),  # what was sent before it is missing
        6: derived(8),
        7: derived(9, 0, (8, 0)),
        8: [("trace", b"t")],  # of no derivation
    }
    await bed.take(seat, 0, *[row] * 9, headers=headers)
    assert bed.handler.acted == [f"run.asked/0/{offset}" for offset in (0, 1, 4, 6, 7)]
    assert seat.memory.offsets.low == 9
    commit = Commit.of(seat.memory.offsets, "id")
    read = Commit.read(commit.offset, commit.metadata())
    again = Bed(derived=True)
    seat = again.seat(start=9, state=read.filter)
    await again.take(seat, 9, row, row, headers={9: derived(9), 10: derived(10, 0, (9, 0))})
    assert again.handler.acted == ["run.asked/0/10"]


async def test_a_derived_topic_without_its_head_is_read_from_its_first_record_on():
    bed = Bed(derived=True)
    seat = bed.seat(start=40, state=FilterState(headless=True))
    headers = {40: derived(5, 0, (4, 0)), 41: derived(5, 0, (4, 0)), 42: derived(7, 0, (6, 0))}
    await bed.take(seat, 40, *[Asked("q", "t")] * 3, headers=headers)
    assert bed.handler.acted == ["run.asked/0/40"]


@pytest.mark.parametrize(
    ("source", "committed", "state"),
    [
        ("events", TopicPartition(SOURCE, 0, -1001), FilterState(headless=True)),
        ("", TopicPartition(SOURCE, 0, -1001), None),
        ("events", TopicPartition(FIRST, 0, -1001), None),
    ],
)
def test_where_a_reactor_begins_in_a_log_without_its_head(source, committed, state):
    asker = reactor("run", "http://unused")
    topic = replace(asker.topic, derived_from=(source,) if source else ())
    asker = replace(asker, topic=topic)
    bounds = LogBounds("id", 40, 50, 1)
    begin = start_of(asker, Seat(committed.topic, 0), committed, bounds)
    assert begin == Commit(40, "id", state)


async def test_a_record_is_finished_only_once_what_came_of_it_is_on_the_log():
    for result in ("ok", Retry("busy"), GiveUp("no")):
        bed = Bed()
        bed.handler.result = result
        bed.out.open.clear()
        seat = bed.seat()
        await bed.take(seat, 0, Asked("q", "t"))
        assert (bed.out.sent, seat.memory.offsets.low) == ([], 0)
        bed.out.open.set()
        await turns()
        assert seat.memory.offsets.low == 1
        assert bed.out.sent


async def test_a_retried_record_keeps_its_bytes_its_headers_and_its_place():
    bed = Bed()
    bed.handler.result = Retry("busy")
    await bed.take(bed.seat(), 0, Asked("q", "t"))
    (copy,) = bed.out.sent
    assert (copy.topic, copy.key, copy.value, copy.partition) == (FIRST, b"k", b"v", 0)
    assert copy.headers[0] == ("trace", b"t")
    said = dict(copy.headers)
    assert said["headrace.retry.attempt"] == b"2"
    assert said["headrace.retry.due_ms"] == b"1300"
    await bed.take(bed.seat(FIRST), 0, Asked("q", "t"), headers={0: copy.headers})
    assert bed.handler.acted == ["run.asked/0/0", "run.asked/0/0"]
    second = dict(bed.out.sent[1].headers)
    assert second["headrace.retry.attempt"] == b"3"
    assert len(bed.out.sent[1].headers) == len(copy.headers)


async def test_faults_of_a_handler_end_in_a_letter_and_not_in_a_crash():
    bed = Bed()
    bed.handler.result, bed.handler.gives_up = GiveUp("no"), ZeroDivisionError("x")
    seat = bed.seat()
    await bed.take(seat, 0, Asked("q", "broken"), Asked("q", "t"), Reading(dead="framing"))
    reasons = [dict(one.headers)["__connect.errors.exception.message"] for one in bed.out.sent]
    assert bed.out.topics() == ["run.asked.dlq"] * 3
    assert sorted(reasons) == [
        b"framing",
        b"no; gave_up: ZeroDivisionError: x",
        b"route: KeyError: 'broken'",
    ]
    assert seat.memory.offsets.low == 3


@pytest.mark.parametrize("how", ["row", "size"])
async def test_an_outcome_that_cannot_be_written_makes_a_letter(how):
    bed = Bed()
    bed.handler.result = "bad row" if how == "row" else "large"
    bed.out.refuse = "run.answered" if how == "size" else ""
    seat = bed.seat()
    await bed.take(seat, 0, Asked("q", "t"))
    assert bed.out.topics() == ["run.asked.dlq"]
    assert seat.memory.offsets.low == 1


async def test_a_letter_that_cannot_be_written_ends_the_worker():
    bed = Bed()
    bed.handler.result, bed.out.refuse = GiveUp("no"), "run.asked.dlq"
    seat = bed.seat()
    with pytest.raises(AssertionError):
        await bed.take(seat, 0, Asked("q", "t"))
    assert isinstance(bed.failures[0], Unsendable)
    assert seat.memory.offsets.low == 0


async def test_a_seat_that_leaves_waits_for_its_calls_and_begins_nothing():
    bed = Bed(limits=Limits(per_target=1))
    leaving, other = bed.seat(), bed.seat()
    await bed.take(leaving, 0, Asked("q0", "hang"), Asked("q1", "hang"))
    await bed.take(other, 10, Asked("q2", "t"))
    left = asyncio.create_task(bed.engine.leave([leaving], 5))
    await turns()
    assert not left.done()
    bed.handler.hold.set()
    await left
    assert bed.handler.acted == ["run.asked/0/0", "run.asked/0/10"]
    assert leaving.memory.offsets.low == 1


@pytest.mark.parametrize("stubborn", [False, True])
async def test_what_is_cut_off_writes_nothing_and_makes_room(stubborn):
    bed = Bed(limits=Limits(per_target=1))
    bed.handler.stubborn = stubborn
    leaving, other = bed.seat(), bed.seat()
    await bed.take(leaving, 0, Asked("q0", "hang"))
    await bed.take(other, 10, Asked("q1", "hang"))
    await bed.engine.leave([leaving], 0)
    bed.handler.hold.set()
    await turns()
    assert leaving.memory.offsets.low == 0
    assert bed.handler.acted[-1] == "run.asked/0/10"
    assert bed.out.topics() == ["run.answered"]


async def test_while_everything_is_taken_no_more_is_taken_in():
    bed = Bed(limits=Limits(in_flight_max=1))
    seat = bed.seat()
    await bed.take(seat, 0, Asked("q0", "hang"))
    taking = asyncio.create_task(bed.take(seat, 1, Asked("q1", "t")))
    await turns()
    assert not taking.done()
    bed.handler.hold.set()
    await taking
    assert len(bed.handler.acted) == 2


async def test_while_the_log_does_not_take_records_no_more_are_taken_in():
    bed = Bed(limits=Limits(in_flight_max=10_000))
    bed.out.open.clear()
    seat = bed.seat()
    rows = [Asked(f"q{n}", f"t{n}") for n in range(SENDS_MAX + 1)]
    bed.handler.result = Retry("busy")
    taking = asyncio.create_task(bed.take(seat, 0, *rows))
    await turns()
    bed.out.open.set()
    await taking
    assert seat.memory.offsets.low == SENDS_MAX + 1
