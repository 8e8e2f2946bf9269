"""Rows as text: one by one as by the frame."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.drivers.rows import decoded, encoded, plain, row_of, text_of

PLAIN = {"a": pl.String, "b": pl.Int64, "c": pl.Boolean, "d": pl.UInt16}
ROWS = st.fixed_dictionaries(
    {
        "a": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "b": st.none() | st.integers(-(2**63), 2**63 - 1),
        "c": st.none() | st.booleans(),
        "d": st.none() | st.integers(0, 2**16 - 1),
    }
)


@given(ROWS)
def test_a_row_of_plain_values_is_written_and_read_as_a_frame_is(row: dict[str, Any]) -> None:
    text = text_of(row[column] for column in PLAIN)
    assert [text] == encoded(pl.DataFrame([row], schema=PLAIN), PLAIN).to_list()
    assert row_of(text.encode(), PLAIN) == row
    assert decoded([text.encode()], PLAIN).to_dicts() == [row]


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(pl.Binary, b"\0\xff"), (pl.Datetime("ms", "UTC"), datetime(2026, 1, 2, 3, tzinfo=UTC)),
     (pl.Float64, 0.1), (pl.List(pl.String), ["a"])],
)  # fmt: skip
def test_other_values_are_read_by_way_of_a_frame(dtype: Any, value: Any) -> None:
    schema = {"a": pl.String, "v": dtype}
    assert not plain(dtype)
    row = {"a": "x", "v": value}
    (text,) = encoded(pl.DataFrame([row], schema=schema), schema).to_list()
    assert row_of(text.encode(), schema) == row
