from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime import marks as module
from streams.runtime.marks import Mark, Marks
from streams.runtime.outcome import Outcome
from streams.runtime.position import FilterState

BATCHES = st.lists(
    st.tuples(
        st.integers(1, 5),  # offsets in the batch
        st.integers(0, 4),  # how far event time moves
        st.one_of(st.none(), st.integers(-3, 20)),  # open until, from the new watermark on
        st.one_of(st.none(), st.integers(0, 8)),  # offset of a session's first row, counted back
    ),
    max_size=30,
)


def play(batches):
    """Marks, a plain record of every batch, and where the log stands, after each batch."""
    marks, seen, offset, watermark, floor = Marks(), [], 0, 0, 0
    for height, moves, life, back in batches:
        start = Mark(offset, watermark, FilterState(claim_offset=offset))
        offset, watermark = offset + height, watermark + moves
        until = None if life is None else watermark + life
        first = None if back is None else max(floor, offset - 1 - back)
        floor = offset if first is None else first  # what was closed stays closed
        marks = marks.add(start, Outcome(open_until_ms=until, open_from_offset=first))
        marks = marks.settle(watermark)
        seen.append((start, until))
        yield marks, seen, first, Mark(offset, watermark)


@settings(deadline=None)
@given(BATCHES)
def test_low_is_the_start_of_the_oldest_batch_that_matters(batches):
    for marks, seen, first, now in play(batches):
        matter = [
            start
            for n, (start, until) in enumerate(seen)
            if (until is not None and until > now.watermark_ms)
            or (first is not None and start.offset <= first and not any(
                later.offset <= first for later, _ in seen[n + 1 :]
            ))
        ]  # fmt: skip
        assert marks.low(now) == (matter[0] if matter else now)


@settings(deadline=None)
@given(BATCHES)
def test_coalescing_only_moves_low_down_to_a_start_that_was_noted(batches):
    exact = [(m.low(now), now) for m, _, _, now in play(batches)]
    real, module.MARKS_MAX = module.MARKS_MAX, 3
    try:
        for (low, _), (marks, seen, _, now) in zip(exact, play(batches), strict=True):
            rounded = marks.low(now)
            assert len(marks.spans) <= 3
            assert rounded.offset <= low.offset
            assert rounded == now or rounded in [start for start, _ in seen]
    finally:
        module.MARKS_MAX = real


def test_low_never_goes_back_and_is_next_when_nothing_is_open():
    lows = [marks.low(now) for marks, _, _, now in play([(2, 1, 3, None)] * 20)]
    assert lows == sorted(lows, key=lambda mark: mark.offset)
    now = Mark(7, 100)
    assert Marks().low(now) is now
    closed = Marks().add(Mark(0, 0), Outcome(open_until_ms=100))
    assert closed.low(now) == now
    assert closed.low(Mark(7, 99)) == Mark(0, 0)
