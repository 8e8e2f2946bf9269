from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.position import NO_WATERMARK
from streams.runtime.watermark import milliseconds, skewed, stamp

EVENTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(-100, 100))), max_size=30
)


def frames_of(events, first=0):
    found = {}
    for name in "abc":
        rows = [(first + 3 * n, t) for n, (kind, t) in enumerate(events) if kind == name]
        if rows:
            schema = {"_offset": pl.Int64, "t": pl.Int64}
            found[name] = pl.DataFrame(rows, schema=schema, orient="row")
    return found


def naive(events, before, bound):
    marks = []
    for _, t in events:
        marks.append(before)
        before = before if t is None else max(before, t - bound)
    return marks, before


@settings(deadline=None)
@given(EVENTS, st.integers(0, 30), st.integers(0, 20), st.sampled_from([NO_WATERMARK, 5]))
def test_every_cut_and_mix_of_record_types_equals_row_by_row(events, cut, bound, before):
    expected, after = naive(events, before, bound)
    got = {}
    for part, first in ((events[:cut], 0), (events[cut:], 3 * cut)):
        stamped, before = stamp(frames_of(part, first), "t", before, bound)
        for frame in stamped.values():
            got |= dict(frame.select("_offset", "_watermark").iter_rows())
    assert [got[o] for o in sorted(got)] == expected
    assert before == after


def test_a_record_type_without_event_time_gets_a_watermark_and_moves_none():
    frames = {
        "timed": pl.DataFrame({"_offset": [0, 2], "t": [100, 200]}),
        "plain": pl.DataFrame({"_offset": [1, 3]}),
    }
    stamped, after = stamp(frames, "t", 0, 10)
    assert stamped["plain"]["_watermark"].to_list() == [90, 190]
    assert after == 190
    assert stamp(frames, None, 7, 10)[1] == 7
    assert stamp({}, "t", 7, 10) == ({}, 7)


def test_datetimes_of_any_unit_are_milliseconds():
    moment = datetime(2024, 10, 27, 1, 30, tzinfo=UTC)
    for unit in ("ms", "us", "ns"):
        times = pl.Series([moment], dtype=pl.Datetime(unit, "UTC"))
        assert milliseconds(times).to_list() == [1_729_992_600_000]
    with pytest.raises(TypeError, match="not a Datetime"):
        milliseconds(pl.Series("t", [1.5]))


def test_bug_14_one_row_of_tomorrow_makes_no_other_row_late():
    """Bug 14: the odd row is found by the log's append time, and the ten after it count."""
    minute, day = 60_000, 86_400_000
    times = [0, 2 * minute, day, *(m * minute for m in range(3, 13))]
    appended = [0, *(m * minute for m in range(2, 14))]
    odd = skewed(pl.Series(times), pl.Series(appended), 60_000)
    assert odd.arg_true().to_list() == [2]
    rows = pl.DataFrame({"_offset": range(13), "t": times}).filter(~odd)
    stamped, after = stamp({"x": rows}, "t", NO_WATERMARK, 0)
    late = stamped["x"].filter(pl.col("t") // minute * minute + minute <= pl.col("_watermark"))
    assert late.height == 0
    assert after == 12 * minute


def test_skew_is_exclusive_and_needs_both_times():
    event, appended = pl.Series([10, 11, None, 99]), pl.Series([0, 0, 0, None], dtype=pl.Int64)
    assert skewed(event, appended, 10).to_list() == [False, True, False, False]
