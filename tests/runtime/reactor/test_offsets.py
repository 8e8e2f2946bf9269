"""The offset tracker: nothing is committed past an unfinished record, nothing finished is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.position import FilterState, SourceState
from streams.runtime.reactor.offsets import (
    METADATA_CHARS_MAX,
    BadMetadata,
    Commit,
    Offsets,
)


def test_the_lowest_unfinished_record_keeps_the_commit_back():
    offsets = Offsets(2585)
    for offset in range(2585, 2590):
        assert offsets.read(offset)
    for offset in range(2586, 2590):
        offsets.finish(offset)
    assert offsets.low == 2585
    assert list(offsets.done()) == [(2586, 2590)]
    offsets.finish(2585)
    assert offsets.low == 2590
    assert list(offsets.done()) == []


def test_gaps_in_the_log_are_finished_and_other_offsets_are_refused():
    offsets = Offsets(0)
    assert offsets.read(3)
    assert offsets.read(7)
    offsets.finish(3)
    assert offsets.low == 7
    with pytest.raises(ValueError, match="offset 7 after 7"):
        offsets.read(7)
    with pytest.raises(KeyError):
        offsets.finish(5)


def test_the_state_of_the_reader_rule_is_the_one_before_the_lowest_unfinished():
    before, after = FilterState(seq=1), FilterState(seq=2)
    offsets = Offsets(10, state=before)
    offsets.read(10)
    offsets.filter = after
    assert offsets.filter_low == before
    offsets.finish(10)
    assert offsets.filter_low == after


def test_a_state_that_no_commit_can_hold_is_an_error_and_not_a_lost_commit():
    sources = {f"{'a' * 16}/{n}": SourceState(n * 10**9, 0, 0, 0) for n in range(60)}
    commit = Commit(5, "i" * 22, FilterState(sources=sources), ((6, 7),))
    assert len(commit.metadata()) <= METADATA_CHARS_MAX
    assert Commit.read(5, commit.metadata()) == commit
    more = {f"{'b' * 16}/{n}": SourceState(n * 10**9, 0, 0, 0) for n in range(60)}
    with pytest.raises(ValueError, match="120 source partitions does not fit"):
        Commit(5, "id", FilterState(sources=sources | more)).metadata()


def test_what_was_finished_before_a_restart_stays_so_until_it_is_read_again():
    offsets = Offsets(10, ((12, 20), (30, 31)))
    assert offsets.read(10)
    offsets.finish(10)
    assert offsets.low == 11
    assert list(offsets.done()) == [(12, 20), (30, 31)]
    assert offsets.read(11)
    assert not offsets.read(12)
    assert list(offsets.done()) == [(12, 20), (30, 31)]


def test_metadata_that_would_not_fit_leaves_the_highest_ranges_out():
    done = tuple((n * 10 + 1, n * 10 + 2) for n in range(5_000))
    commit = Commit(0, "topic-id", FilterState(1, "ab", 2, 3), done)
    text = commit.metadata()
    assert len(text) <= METADATA_CHARS_MAX
    read = Commit.read(0, text)
    assert read.filter == commit.filter
    assert 500 < len(read.done) < 5_000
    assert read.done == done[: len(read.done)]


@pytest.mark.parametrize(
    "text", ["", "5-9,12", '["t",null,"3"]', '["t",null,"-1+2"]', '["t",null,"1+0"]']
)
def test_foreign_metadata_is_refused(text):
    with pytest.raises(BadMetadata):
        Commit.read(5, text)


@given(st.data())
def test_any_order_of_finishing_and_any_crashes(data):
    """Against a set of finished offsets: the log is read from the commit after each crash."""
    log = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1)))
    calls = dict.fromkeys(log, 0)
    recorded: set[int] = set()
    commit = Commit(0, "id")
    for _life in range(3):
        offsets = Offsets(commit.offset, commit.done)
        held = [offset for offset in log if offset >= commit.offset]
        running: list[int] = []
        steps = data.draw(st.integers(0, 2 * len(held)))
        for _ in range(steps):
            if held and (not running or data.draw(st.booleans())):
                offset = held.pop(0)
                fresh = offsets.read(offset)
                assert fresh == (offset not in recorded)
                if fresh:
                    calls[offset] += 1
                    running.append(offset)
            elif running:
                offset = running.pop(data.draw(st.integers(0, len(running) - 1)))
                offsets.finish(offset)
            assert offsets.low == min(running, default=offsets.next)
            commit = Commit.of(offsets, "id")
            assert Commit.read(commit.offset, commit.metadata()) == commit
            known = {
                one
                for one in log
                if one < commit.offset or any(a <= one < b for a, b in commit.done)
            }
            finished = {one for one in log if calls[one]} - set(running) - set(held)
            assert known & set(running) == set()
            assert finished <= known
            recorded = known
    assert all(calls[offset] for offset in recorded)
