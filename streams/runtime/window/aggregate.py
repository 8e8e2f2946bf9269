"""Aggregates a window can keep: those that can be merged.

A window is folded from partial results: rows → one partial per group and batch, partials →
totals. So an aggregate is a pair of expressions, and results are independent of batch borders
exactly when merging is associative and commutative. To add one, give both halves:

    Aggregate(pl.col("flags").bitwise_or(), lambda name: pl.col(name).bitwise_or())

A mean is kept as a `Sum` and a `Count` and divided by the reader; a float sum is refused, since
float addition is not associative (sum integers: micros, cents, milliseconds).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl


@dataclass(frozen=True)
class Aggregate:
    """`partial` folds rows to one value; `merge(name)` folds the values of column `name`.

    `summed` names the column that must be an integer, if any.
    """

    partial: pl.Expr
    merge: Callable[[str], pl.Expr]
    summed: str | None = None

    def check(self, schema: pl.Schema) -> None:
        """Raise `TypeError` for a sum over a column that is not an integer."""
        dtype = None if self.summed is None else schema.get(self.summed)
        if dtype is not None and not dtype.is_integer():
            raise TypeError(f"sum of {self.summed}: {dtype} is not an integer")


def Count() -> Aggregate:  # noqa: N802 - reads as the name of the aggregate it makes
    """Rows."""
    return Aggregate(pl.len().cast(pl.Int64), lambda name: pl.col(name).sum())


def Sum(column: str) -> Aggregate:  # noqa: N802
    """Sum of an integer column as Int64; nulls add nothing."""
    partial = pl.col(column).cast(pl.Int64).sum()
    return Aggregate(partial, lambda name: pl.col(name).sum(), summed=column)


def Min(column: str) -> Aggregate:  # noqa: N802
    """Least value; null where all are."""
    return Aggregate(pl.col(column).min(), lambda name: pl.col(name).min())


def Max(column: str) -> Aggregate:  # noqa: N802
    """Greatest value; null where all are."""
    return Aggregate(pl.col(column).max(), lambda name: pl.col(name).max())
