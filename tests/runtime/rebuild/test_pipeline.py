"""The pipeline of a rebuild stores what the pump would, and nothing beyond what failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from sinks.drivers.memory import MemorySink
from streams.runtime.avro import Decoder
from streams.runtime.lane.patience import Stopped
from streams.runtime.lane.pump import Pump
from streams.runtime.lane.span import Seat
from streams.runtime.metrics import Metrics
from streams.runtime.rebuild.pipeline import Pipeline
from streams.runtime.sink import SinkRejected, SinkUnavailable, Upsert, Write
from streams.runtime.topic import Topic
from tests.runtime.lane.bed import Bed, Keep, message, span, value
from tests.runtime.lane.ruled import DERIVED, EVENTS, SEEN, See
from tests.runtime.lane.test_rules import CHAIN, ZOMBIE

Trouble = Callable[[Write], Exception | None]


class Recorder(MemorySink):
    """Remembers what was tried and what landed, and fails as it is told."""

    def __init__(self, bed: Bed, trouble: Trouble) -> None:
        super().__init__(bed.projection.model, bed.store)
        self._trouble = trouble
        self.tried: list[tuple[int, int]] = []
        self.landed: list[tuple[int, int]] = []

    def write(self, version: int, write: Write) -> None:
        first = 0 if write.expected is None else write.expected.next_offset
        at = (first, write.position.next_offset)
        self.tried.append(at)
        if (error := self._trouble(write)) is not None:
            raise error
        super().write(version, write)
        self.landed.append(at)


def _no_trouble(_: Write) -> None:
    return None


@contextmanager
def pipelined(
    bed: Bed, trouble: Trouble = _no_trouble, linger_ms: int = 0
) -> Iterator[tuple[Pipeline, Recorder]]:
    """A pipeline around the bed's fold and store, as a rebuild has it."""
    bed.projection = replace(bed.projection, linger_ms=linger_ms)
    sink = Recorder(bed, trouble)
    bed.registry = CollectorRegistry()
    metrics = Metrics(bed.registry).agent(
        "test-keep", system="test", topic="test.clicks", store="memory"
    )
    decoder = Decoder(bed.projection.topic, bed.schemas)

    def restart(seat: Seat, fresh: Seat, offset: int) -> None:
        raise RuntimeError("somebody else writes")

    bed.pump = Pump(
        bed.projection,
        sink,
        decoder,
        bed.outbox,
        metrics,
        bounds=lambda _: bed.bounds,
        restart=restart,
        commit=lambda _seat, _position: None,
        stopping=bed.stopping,
        version=1,
    )
    pipeline = Pipeline(
        bed.projection,
        sink,
        decoder,
        bed.pump,
        metrics,
        bounds=lambda _: bed.bounds,
        version=1,
        stopping=bed.stopping,
    )
    try:
        yield pipeline, sink
    finally:
        pipeline.close()


def holding(offset: int, error: Exception) -> Trouble:
    """Every write that holds the row of this offset fails."""

    def trouble(write: Write) -> Exception | None:
        rows = [c.rows["offset"] for c in write.changes if isinstance(c, Upsert)]
        return error if any(offset in one.to_list() for one in rows) else None

    return trouble


def once(offset: int, error: Exception) -> Trouble:
    """The first write that holds the row of this offset fails."""
    always, left = holding(offset, error), [error]
    return lambda write: left.pop() if left and always(write) is not None else None


def ruled(of: Topic) -> Bed:
    """A bed of a topic with a reader rule."""
    return Bed(fold=See(), of=of, table=SEEN)


def overtaken(bed: Bed) -> None:
    """Another writer moves partition 0 to offset 2."""
    other = bed.another(MemorySink(bed.projection.model, bed.store))
    theirs = Seat("test.clicks", 0)
    other.locate(theirs)
    other.process(span(theirs, message(0), message(1)))


def test_what_is_taken_is_stored_in_order() -> None:
    bed = Bed()
    with pipelined(bed) as (pipeline, sink):
        seat = bed.seat()
        for offset in range(8):
            pipeline.take(span(seat, message(offset)))
        assert pipeline.busy
        pipeline.finish()
        assert not pipeline.busy
    assert bed.kept() == list(range(8))
    assert sink.landed == [(n, n + 1) for n in range(8)]
    assert seat.memory.position == bed.position


def test_a_store_that_wants_large_writes_gets_them_joined() -> None:
    bed = Bed()
    with pipelined(bed, linger_ms=1_000) as (pipeline, sink):
        seat = bed.seat()
        for offset in range(8):
            pipeline.take(span(seat, message(offset)))
        assert sink.tried == []
        pipeline.finish()
    assert (bed.kept(), sink.landed) == (list(range(8)), [(0, 8)])
    assert bed.position.counts == {"applied": 8}


@pytest.mark.parametrize("linger_ms", [0, 1_000])
def test_a_row_that_the_store_refuses_is_set_aside_and_its_neighbours_land(linger_ms: int) -> None:
    bed = Bed()
    trouble = holding(4, SinkRejected("too long"))
    with pipelined(bed, trouble, linger_ms) as (pipeline, sink):
        seat = bed.seat()
        for first in range(0, 12, 3):
            pipeline.take(span(seat, *(message(first + n) for n in range(3))))
        pipeline.finish()
    assert bed.kept() == [n for n in range(12) if n != 4]
    assert bed.position.counts == {"applied": 11, "quarantined": 1}
    assert in_line(sink.landed)


@pytest.mark.parametrize("linger_ms", [0, 1_000])
def test_a_record_that_does_not_fold_is_set_aside(linger_ms: int) -> None:
    bed = Bed(fold=Keep({"bad": ValueError("bad")}))
    with pipelined(bed, linger_ms=linger_ms) as (pipeline, sink):
        seat = bed.seat()
        for offset in range(6):
            content = value(str(offset), "bad" if offset == 3 else "c")
            pipeline.take(span(seat, message(offset, content)))
        pipeline.finish()
    assert bed.kept() == [0, 1, 2, 4, 5]
    assert in_line(sink.landed)


@pytest.mark.parametrize("trouble", [_no_trouble, holding(6, SinkRejected("too long"))])
@pytest.mark.parametrize("linger_ms", [0, 1_000])
@pytest.mark.parametrize("size", [1, 3, 10])
@pytest.mark.parametrize(("of", "log"), [(EVENTS, ZOMBIE), (DERIVED, CHAIN)])
def test_what_the_reader_rule_refuses_is_told_by_reason_as_the_lane_tells_it(
    of: Topic, log: Sequence[Message], size: int, linger_ms: int, trouble: Trouble
) -> None:
    lane, bed = ruled(of), ruled(of)
    lane.pump.process(span(lane.seat(), *log))
    assert sum(lane.stale().values()) == lane.position.counts["stale"] > 0
    with pipelined(bed, trouble, linger_ms) as (pipeline, _):
        seat = bed.seat()
        for at in range(0, len(log), size):
            pipeline.take(span(seat, *log[at : at + size]))
        pipeline.finish()
    assert bed.position.counts["stale"] == lane.position.counts["stale"]
    assert {reason: rows for reason, rows in bed.stale().items() if rows} == lane.stale()


def test_what_was_refused_before_a_restart_is_not_told_again() -> None:
    bed = ruled(EVENTS)
    bed.pump.process(span(bed.seat(), *ZOMBIE[:6]))
    with pipelined(bed) as (pipeline, _):
        seat = bed.seat()
        pipeline.take(span(seat, *ZOMBIE[bed.pump.locate(seat) :]))
        pipeline.finish()
    assert bed.stale() == {"seq": 1, "foreign": 1}


def test_nothing_behind_a_failed_write_is_sent_before_it_is_made_good() -> None:
    bed = Bed()
    with pipelined(bed, once(2, SinkRejected("a full disk"))) as (pipeline, sink):
        seat = bed.seat()
        for offset in range(6):
            pipeline.take(span(seat, message(offset)))
        pipeline.finish()
    assert sink.tried[:4] == [(0, 1), (1, 2), (2, 3), (2, 3)]
    assert sink.landed == [(n, n + 1) for n in range(6)]


def test_an_unknown_outcome_is_asked_for_and_not_repeated_blindly() -> None:
    bed = Bed()
    with pipelined(bed) as (pipeline, _):
        seat = bed.seat()
        bed.store.lose_replies(1)
        for offset in range(4):
            pipeline.take(span(seat, message(offset)))
        pipeline.finish()
    assert bed.kept() == [0, 1, 2, 3]


def test_another_writer_ends_the_rebuild_and_nothing_lands_behind() -> None:
    bed = Bed()
    with pipelined(bed) as (pipeline, _):
        seat = bed.seat()
        overtaken(bed)
        with pytest.raises(RuntimeError, match="somebody else writes"):
            for offset in range(6):
                pipeline.take(span(seat, message(offset)))
            pipeline.finish()
    assert (bed.kept(), bed.next_offset) == ([0, 1], 2)


def test_a_stop_while_the_store_is_down_ends_the_pipeline() -> None:
    bed = Bed()
    with pipelined(bed, lambda _: SinkUnavailable("down")) as (pipeline, _):
        seat = bed.seat()
        threading.Timer(0.1, bed.stopping.set).start()
        with pytest.raises(Stopped):
            for offset in range(6):
                pipeline.take(span(seat, message(offset)))
            pipeline.finish()
    assert bed.kept() == []


def test_a_partition_in_trouble_does_not_hold_what_another_has_in_flight() -> None:
    bed = Bed()
    with pipelined(bed) as (pipeline, _):
        seat, other = bed.seat(), Seat("test.clicks", 1)
        bed.pump.locate(other)
        overtaken(bed)
        with pytest.raises(RuntimeError, match="somebody else writes"):
            for offset in range(4):
                pipeline.take(span(other, message(offset)))
                pipeline.take(span(seat, message(offset)))
            pipeline.finish()
    stored = bed.sink.load(1, "test.clicks", 1)
    assert stored is not None
    assert stored == other.memory.position


_CUTS = st.lists(st.integers(1, 6), min_size=1, max_size=12)
_FAULTS = st.dictionaries(st.integers(0, 40), st.sampled_from(["once", "always", "fold"]))


@settings(max_examples=60, deadline=None)
@given(cuts=_CUTS, faults=_FAULTS, linger_ms=st.sampled_from([0, 1_000]))
def test_any_cuts_and_faults_store_what_is_good_once_in_order(
    cuts: list[int], faults: Mapping[int, str], linger_ms: int
) -> None:
    bed = Bed(fold=Keep({"bad": ValueError("bad")}))
    troubles = [
        (once if kind == "once" else holding)(offset, SinkRejected("no"))
        for offset, kind in faults.items()
        if kind != "fold"
    ]

    def trouble(write: Write) -> Exception | None:
        return next((error for one in troubles if (error := one(write)) is not None), None)

    def record(offset: int) -> Any:
        return message(offset, value(str(offset), "bad" if faults.get(offset) == "fold" else "c"))

    with pipelined(bed, trouble, linger_ms) as (pipeline, sink):
        seat, first = bed.seat(), 0
        for rows in cuts:
            pipeline.take(span(seat, *(record(first + n) for n in range(rows))))
            first += rows
        pipeline.finish()
    bad = {offset for offset, kind in faults.items() if kind != "once"}
    assert bed.kept() == [n for n in range(first) if n not in bad]
    assert bed.next_offset == first
    assert in_line(sink.landed)
    counts = bed.position.counts
    assert counts.get("applied", 0) + counts.get("quarantined", 0) == first


def in_line(landed: list[tuple[int, int]]) -> bool:
    """Whether each write began where the one before it ended."""
    moved = [at for at in landed if at[0] != at[1]]
    return all(one[1] == two[0] for one, two in pairwise(moved))
