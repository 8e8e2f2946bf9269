"""Rules B2 and B9: the columns say what the rows say, wherever a batch is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.derivation.filter import Verdict, accept, judge, least
from streams.runtime.derivation.wire import (
    HEARTBEAT,
    NONE,
    Source,
    columns,
    source_header,
    source_id,
)
from streams.runtime.position import NO_WATERMARK, FilterState, SourceState

IDS = (source_id("one", "topic-1"), source_id("two", "topic-2"))
Log = list[Source | None]


def record(
    offset: int,
    index: int = 0,
    prev: tuple[int, int] = NONE,
    *,
    source: int = 0,
    partition: int = 0,
    partitions: int = 2,
    watermark_ms: int = 0,
) -> Source:
    return Source(IDS[source], partition, partitions, offset, index, *prev, watermark_ms)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Sources that mostly follow their own chain, sometimes skip, repeat, or begin a new run."""
    last: dict[tuple[int, int], tuple[int, int]] = {}
    log: Log = []
    for _ in range(draw(st.integers(0, 40))):
        source = (draw(st.integers(0, 1)), draw(st.integers(0, 2)))
        kind = draw(st.sampled_from(["next", "next", "next", "beat", "lost", "run", "old", "none"]))
        if kind == "none":
            log.append(None)
            continue
        offset, index = last.get(source, NONE)
        at = draw(st.sampled_from([(offset, index + 1), (offset + 1, 0), (offset + 3, 0)]))
        if index == HEARTBEAT or offset < 0:
            at = (offset + 1, 0)
        if kind == "beat":
            at = (offset + 1, HEARTBEAT)
        if kind == "old":
            at = (max(0, offset - draw(st.integers(0, 2))), 0)
        prev = NONE if kind in ("run", "old") else (offset, index)
        partitions = draw(st.sampled_from([1, 2, 2, 3]))
        watermark_ms = draw(st.sampled_from([NO_WATERMARK, 0, *range(20)]))
        last[source] = at
        if kind != "lost":
            log.append(
                record(
                    *at, prev, source=source[0], partition=source[1],
                    partitions=partitions, watermark_ms=watermark_ms,
                )
            )  # fmt: skip
    return log


def by_row(
    log: Log, state: FilterState, topics: int, before_ms: int, bound_ms: int
) -> tuple[list[Verdict], list[int], FilterState, int]:
    verdicts, watermarks = [], []
    for source in log:
        watermarks.append(before_ms)
        state, verdict = judge(state, source)
        verdicts.append(verdict)
        before_ms = max(before_ms, least(state.sources, topics) - bound_ms)
    return verdicts, watermarks, state, before_ms


@settings(max_examples=400, deadline=None)
@given(logs(), st.integers(1, 2), st.integers(0, 5), st.booleans(), st.data())
def test_columns_and_rows_agree_for_every_cut(
    log: Log, topics: int, bound_ms: int, headless: bool, data: st.DataObject
) -> None:
    begin = FilterState(headless=headless)
    verdicts, watermarks, end, end_ms = by_row(log, begin, topics, NO_WATERMARK, bound_ms)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=3)))
    state, now_ms = begin, NO_WATERMARK
    codes: list[int] = []
    before: list[int] = []
    for first, stop in zip([0, *cuts], [*cuts, len(log)], strict=True):
        headers = columns(None if one is None else one.pack() for one in log[first:stop])
        found = accept(state, headers, topics=topics, before_ms=now_ms, bound_ms=bound_ms)
        codes += found.codes.tolist()
        before += found.watermarks.tolist()
        state, now_ms = found.state, found.watermark_ms
        assert found.mask.sum() == found.rows(Verdict.ACCEPTED).size
    assert codes == verdicts
    assert before == watermarks
    assert (state, now_ms) == (end, end_ms)


def test_a_header_of_fixed_width() -> None:
    source = record(7, 3, (6, 1), source=1, partition=5, watermark_ms=-9)
    assert Source.unpack(source.pack()) == source
    assert len(source.pack()) == 48
    assert source_header([("headrace-source", b"x"), ("other", b"y")]) == b"x"
    assert source_header([("other", b"y"), ("headrace-source", b"x")]) is None
    assert source_header(None) is None
    assert columns([None, b"", b"x" * 47])["partition"].tolist() == [-1, -1, -1]
    assert len({source_id("a", "1"), source_id("a", "2"), source_id("b", "1")}) == 3


def verdicts(*log: Source | None) -> list[Verdict]:
    found, _, _, _ = by_row(list(log), FilterState(), 1, NO_WATERMARK, 0)
    return found


def test_what_comes_behind_a_hole_waits_for_the_run_that_sends_both() -> None:
    """Counterexample 8: r0 is lost, r1 lands; were it accepted, r0 would never be again."""
    assert verdicts(
        record(1, prev=(0, 0)),
        record(0),
        record(1, prev=(0, 0)),
    ) == [Verdict.HOLE, Verdict.ACCEPTED, Verdict.ACCEPTED]


def test_rows_of_one_source_row_are_told_apart() -> None:
    """Counterexample 9: (5, 1) must not be dropped after (5, 0)."""
    assert verdicts(record(5), record(5, 1, (5, 0)), record(5, 1, (5, 0))) == [
        Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.REPEAT,
    ]  # fmt: skip


def test_sources_are_judged_apart() -> None:
    assert verdicts(record(5), record(3, partition=1), record(3, source=1), None) == [
        Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.FOREIGN,
    ]  # fmt: skip


def test_a_heartbeat_counts_in_the_chain() -> None:
    assert verdicts(
        record(4),
        record(9, HEARTBEAT, (4, 0)),
        record(8, prev=(4, 0)),  # of a run that began before it: its rows up to 9 are all there
        record(10, prev=(9, HEARTBEAT)),
        record(12, prev=(11, HEARTBEAT)),
    ) == [Verdict.ACCEPTED, Verdict.HEARTBEAT, Verdict.REPEAT, Verdict.ACCEPTED, Verdict.HOLE]


def test_the_watermark_waits_for_all_sources_and_is_the_least_of_them() -> None:
    log: Log = [
        record(0, watermark_ms=50),
        record(0, partition=1, watermark_ms=10),
        record(1, watermark_ms=90),
        record(3, HEARTBEAT, partition=1, watermark_ms=70),
    ]
    _, before, _, after = by_row(log, FilterState(), 1, NO_WATERMARK, 0)
    assert [*before, after] == [NO_WATERMARK, NO_WATERMARK, 10, 10, 70]
    _, _, _, after = by_row(log, FilterState(), 2, NO_WATERMARK, 0)
    assert after == NO_WATERMARK  # another source topic is to come


def test_a_lost_record_holds_the_watermark() -> None:
    log: Log = [
        record(0, partitions=1, watermark_ms=1),
        record(5, HEARTBEAT, (4, 0), watermark_ms=9),
    ]
    _, _, state, after = by_row(log, FilterState(), 1, NO_WATERMARK, 0)
    assert after == 1
    assert state.sources == {f"{IDS[0]}/0": SourceState(0, 0, 1, 1)}


@pytest.mark.parametrize("rows", [0, 1, 1_000])
def test_the_plain_case_accepts_everything(rows: int) -> None:
    raw = columns(
        record(n, prev=(n - 1, 0) if n else NONE, partitions=1, watermark_ms=n).pack()
        for n in range(rows)
    )
    found = accept(FilterState(), raw, topics=1, before_ms=NO_WATERMARK, bound_ms=0)
    assert found.mask.all()
    assert found.watermarks.tolist() == [NO_WATERMARK, *range(rows - 1)][:rows]
    assert found.watermark_ms == (rows - 1 if rows else NO_WATERMARK)
