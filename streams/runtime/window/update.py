"""What a window is, and what adding rows to windows answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import polars as pl

from streams.runtime.window.aggregate import Aggregate

START = "start_ms"
END = "end_ms"


class Emit(StrEnum):
    """When a window's totals are given out."""

    UPDATE = "update"
    """After every batch that touched it, open or not."""
    FINAL = "final"
    """Once the watermark has reached its end, and again after a correction within the allowed
    lateness."""


@dataclass(frozen=True)
class Spec:
    """What all kinds of windows share: grouping columns, event-time column, aggregates by the
    name of their result, when to emit, and how long past its end a window takes corrections.
    """

    by: tuple[str, ...]
    time: str
    aggregates: Mapping[str, Aggregate]
    emit: Emit = Emit.UPDATE
    allowed_lateness_ms: int = 0

    def __post_init__(self) -> None:
        """Refuse a negative lateness and names the windows need for themselves."""
        if self.allowed_lateness_ms < 0:
            raise ValueError(f"allowed lateness {self.allowed_lateness_ms} ms is negative")
        taken = {START, END} & {*self.by, *self.aggregates} | set(self.by) & set(self.aggregates)
        if taken:
            raise ValueError(f"names used twice: {sorted(taken)}")

    @property
    def partials(self) -> list[pl.Expr]:
        """Rows → partial results."""
        return [aggregate.partial.alias(name) for name, aggregate in self.aggregates.items()]

    @property
    def merges(self) -> list[pl.Expr]:
        """Partial results → one."""
        return [aggregate.merge(name).alias(name) for name, aggregate in self.aggregates.items()]

    @property
    def columns(self) -> list[str]:
        """Columns of `Update.changed`, in order."""
        return [*self.by, START, END, *self.aggregates]

    def empty(self, rows: pl.DataFrame) -> pl.DataFrame:
        """`Update.changed` without rows, typed as for `rows`."""
        zero = pl.lit(0, pl.Int64)
        # Without a key, a group of no rows is a group all the same.
        folded = rows.clear().group_by(self.by).agg(self.partials).clear()
        return folded.with_columns(zero.alias(START), zero.alias(END)).select(self.columns)


@dataclass(frozen=True)
class Update:
    """The answer to one batch. Apply `deleted` before `changed`.

    - `changed`: absolute totals (the `by` columns, `start_ms`, `end_ms`, the aggregates), one row
      a key and window.
    - `deleted`: keys (`by` columns, `start_ms`) of stored rows that are no more: every session
      absorbed by another one, and a final session that was re-opened.
    - `late`: the rows beyond the allowed lateness, in full, as they came.
    - `open_until_ms`, `open_from_offset`: for `Outcome`, how long these rows still matter.
    """

    changed: pl.DataFrame
    deleted: pl.DataFrame
    late: pl.DataFrame
    open_until_ms: int | None = None
    open_from_offset: int | None = None


class Windows(Protocol):
    """Immutable windows of one partition: what they are and what they hold."""

    def add(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[Windows, Update]:
        """Fold rows that carry the `by`, time and value columns, `_offset` and `_watermark`.

        `watermark_ms` is the watermark after the batch; call this for a batch without rows too,
        since time moves on. Raises `ValueError` for a row without event time.
        """
        ...

    def provisional(self) -> pl.DataFrame | None:
        """The open windows as they stand (columns as `changed`), where they are not out yet.

        For an idle partition; shows results early and never changes what is late.
        """
        ...
