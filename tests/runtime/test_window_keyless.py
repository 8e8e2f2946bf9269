"""Windows over everything: no grouping columns."""

from __future__ import annotations

import polars as pl
import pytest

from streams.runtime.batch import OFFSET, WATERMARK
from streams.runtime.window import Count, Emit, Max, Spec, Windows, hopping, tumbling


@pytest.mark.parametrize("emit", list(Emit))
@pytest.mark.parametrize("slide", [5, 10])
def test_no_rows_change_no_window(emit: Emit, slide: int) -> None:
    spec = Spec((), "time", {"rows": Count(), "most": Max("value")}, emit)
    windows: Windows = hopping(spec, 10, slide)
    windows, update = windows.add(_rows([]), 0)
    assert update.changed.height == 0
    assert update.changed.columns == ["start_ms", "end_ms", "rows", "most"]


def test_all_rows_are_of_one_window() -> None:
    spec = Spec((), "time", {"rows": Count(), "most": Max("value")}, Emit.FINAL)
    windows, update = tumbling(spec, 10).add(_rows([(1, 5), (9, 7)]), 9)
    assert update.changed.height == 0
    windows, update = windows.add(_rows([(12, 1)]), 12)
    assert update.changed.rows() == [(0, 10, 2, 7)]


def _rows(rows: list[tuple[int, int]]) -> pl.DataFrame:
    made = pl.DataFrame(rows, {"time": pl.Int64, "value": pl.Int64}, orient="row")
    offsets = pl.int_range(pl.len()).cast(pl.Int64).alias(OFFSET)
    return made.with_columns(offsets, pl.lit(-(2**40), pl.Int64).alias(WATERMARK))
