"""What a redrive remembers, against a plain set of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.dlq.progress import METADATA_CHARS_MAX, Progress, TooScattered

OFFSETS = st.lists(st.integers(0, 40), max_size=40)


def done(offsets: list[int], low: int = 5) -> Progress:
    progress = Progress(low)
    for offset in offsets:
        progress = progress.with_done(offset)
    return progress


@given(OFFSETS)
def test_it_holds_exactly_what_was_done(offsets: list[int]) -> None:
    progress = done(offsets)
    assert {o for o in range(50) if o in progress} == {*range(5), *offsets}


@given(OFFSETS)
def test_low_is_the_first_letter_to_do(offsets: list[int]) -> None:
    progress = done(offsets)
    assert progress.low not in progress
    assert all(o in progress for o in range(progress.low))


@given(OFFSETS)
def test_the_order_does_not_matter(offsets: list[int]) -> None:
    assert done(offsets) == done(sorted(offsets))


@given(OFFSETS)
def test_metadata_is_read_back(offsets: list[int]) -> None:
    progress = done(offsets)
    assert Progress.read(progress.low, progress.metadata()) == progress


@given(OFFSETS, st.integers(0, 45))
def test_a_log_that_was_cut_loses_only_what_is_gone(offsets: list[int], start: int) -> None:
    progress = done(offsets).since(start)
    assert {o for o in range(start, 50) if o in progress} == {
        o for o in (*range(5), *offsets) if o >= start
    }
    assert progress.low not in progress
    assert all(first > progress.low for first, _ in progress.beyond)


@pytest.mark.parametrize("text", ["x", "3", "9-7", "9,9", "7-9,9", "12,8"])
def test_foreign_metadata_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Progress.read(5, text)


def test_too_scattered_is_refused_and_never_cut_short() -> None:
    progress = done(list(range(6, 6 + METADATA_CHARS_MAX, 2)))
    with pytest.raises(TooScattered):
        progress.metadata()
