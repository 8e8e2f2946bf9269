"""Runs end at the first failure; readers take each derived record once, in order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.derivation.target import HEARTBEAT_MS
from streams.runtime.derivation.wire import HEARTBEAT, Source
from streams.runtime.sink import SinkUnavailable
from tests.runtime.derivation.scene import (
    Committed,
    Log,
    Sent,
    Task,
    disturb,
    expected,
    well,
)

ROWS = st.lists(
    st.builds(Sent, st.just("s"), st.integers(0, 4), st.integers(0, 5_000)), min_size=1, max_size=12
)


@settings(max_examples=250, deadline=None)
@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 14))
def test_readers_take_a_prefix_of_what_the_source_leads_to_and_in_the_end_all(
    rows: list[Sent], chance: random.Random, steps: int
) -> None:
    disturb(rows, chance, steps)


def test_a_failed_write_is_tried_again_by_a_new_run() -> None:
    log, fates = Log(), iter(["sent", "lost", "sent", "sent"])
    rows = [Sent("s", 4, 0)]
    task = Task(log, Committed(), 0, rows, lambda: next(fates, "sent"))
    with pytest.raises(SinkUnavailable, match="1 records failed"):
        task.step(1)
    assert task.step(1)
    assert [log.accepted(n) for n in range(3)] == expected(0, rows)
    assert (log.failures, log.refused()) == (1, 3)


def test_a_crash_before_the_commit_repeats_and_changes_nothing() -> None:
    log, committed = Log(), Committed()
    rows = [Sent("s", 3, n) for n in range(4)]
    first = Task(log, committed, 0, rows, well)
    first.step(2)
    first.commit()
    first.step(2)
    again = Task(log, committed, 0, rows, well)
    assert again.memory.now.offset == 2
    while again.step(9):
        pass
    assert [log.accepted(n) for n in range(3)] == expected(0, rows)
    assert log.refused() == 6


def sources(log: Log, partition: int) -> list[Source]:
    return [Source.unpack(header) for header, _ in log.partitions[partition]]


def test_partitions_without_records_are_told_the_watermark() -> None:
    log = Log()
    rows = [Sent("s", 0, 10), Sent("s", 0, 11 + HEARTBEAT_MS), Sent("s", 0, 12 + HEARTBEAT_MS)]
    task = Task(log, Committed(), 0, rows, well)
    for _ in rows:
        task.step(1)
    told = [(s.offset, s.index, s.watermark_ms, s.prev_offset) for s in sources(log, 2)]
    beats = [(0, HEARTBEAT, 9, -1), (1, HEARTBEAT, 10 + HEARTBEAT_MS, 0)]
    assert told == beats
    task.idle()
    task.idle()  # nothing new to tell
    last = sources(log, 2)[-1]
    assert (last.offset, last.watermark_ms) == (2, 11 + HEARTBEAT_MS)
    assert len(sources(log, 2)) == 3


def test_a_record_names_the_one_before_it_in_its_partition() -> None:
    log = Log()
    task = Task(log, Committed(), 1, [Sent("s", 4, 7), Sent("s", 4, 9)], well)
    task.step(2)
    for partition in range(3):
        chain = [s for s in sources(log, partition) if s.index != HEARTBEAT]
        before = [(-1, -1), *((s.offset, s.index) for s in chain)]
        assert [(s.prev_offset, s.prev_index) for s in chain] == before[:-1]
    places = sorted((s.offset, s.index) for p in range(3) for s in sources(log, p))
    assert [at for at in places if at[1] != HEARTBEAT] == [(o, i) for o in (0, 1) for i in range(4)]
    assert {(s.partition, s.partitions) for s in sources(log, 0)} == {(1, 2)}
