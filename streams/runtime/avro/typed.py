"""Rows of decoded frames as the generated dataclasses have them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import starmap
from typing import Any

import polars as pl


def typed(row: type, frame: pl.DataFrame) -> Iterator[Any]:
    """The rows of a frame whose columns are the fields of `row`; times are whole numbers."""
    columns = [
        (one.to_physical() if one.dtype.is_temporal() else one).to_list()
        for one in frame.get_columns()
    ]
    return starmap(row, zip(*columns, strict=True))
