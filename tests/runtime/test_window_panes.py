from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.window import hopping, tumbling
from tests.runtime.window_model import CUTS, EMITS, LOGS, Model, log, play, spec


@settings(deadline=None)
@given(
    LOGS, CUTS, EMITS, st.integers(1, 9), st.integers(1, 9), st.integers(-3, 3),
    st.sampled_from([0, 2, 7]), st.sampled_from([0, 1, 5]),
)  # fmt: skip
def test_equal_the_row_by_row_model_for_every_cut(
    raw, cuts, emit, size, slide, offset, lateness, bound
):
    slide = min(size, slide)
    rows, after = log(raw, bound)
    model = Model(size, slide, offset, lateness, emit)
    for row, following in zip(rows, [*(r.watermark for r in rows[1:]), after], strict=True):
        model.row(row, following)
    windows = hopping(spec(emit, lateness), size, slide, offset)
    _, table, late = play(windows, rows, after, cuts)
    assert (table, late) == (model.table, model.late)


@settings(deadline=None)
@given(LOGS, CUTS, EMITS, st.integers(1, 9), st.sampled_from([0, 2, 7]), st.sampled_from([0, 5]))
def test_tumbling_equals_the_model(raw, cuts, emit, size, lateness, bound):
    rows, after = log(raw, bound)
    model = Model(size, size, 0, lateness, emit)
    for row, following in zip(rows, [*(r.watermark for r in rows[1:]), after], strict=True):
        model.row(row, following)
    _, table, late = play(tumbling(spec(emit, lateness), size), rows, after, cuts)
    assert (table, late) == (model.table, model.late)
