"""Headrace's side: every query as a fold over batches, and how a reader merges the partitions.

The topic's key is the auction, so a partition has all bids of its auctions. What a query wants
beyond that (q5 and q7: the maximum over all auctions; q11 and q12: by bidder) is folded within the
partition and merged by the reader of the store, from at most four rows a result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from streams.runtime.batch import WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Fold, Projection
from streams.runtime.sink import Changes, Delete, ReadModel, Table, Upsert
from streams.runtime.topic import Topic
from streams.runtime.window import (
    END,
    START,
    Aggregate,
    Count,
    Emit,
    Max,
    Min,
    Spec,
    Sum,
    Update,
    Windows,
    hopping,
    session,
    tumbling,
)
from tests.bench.nexmark.bids import BID, SIDE_ROWS, side_table
from tests.bench.nexmark.oracle import BANDS, DAY_MS, GAP_MS, OUTPUT, SLIDE_MS, WINDOW_MS

TIME = "date_time"
_INT = pl.Int64


@dataclass(frozen=True)
class Query:
    """One query. `columns` are the fields it reads. `answer` makes the answer of the stored
    rows of all partitions; None: every bid gives a row of output, which nothing stores.
    `closed_only`: windows are stored when the watermark has reached their end.
    """

    fold: Fold[Any]
    table: Table
    columns: tuple[str, ...]
    answer: Callable[[pl.LazyFrame], pl.LazyFrame] | None = None
    closed_only: bool = False


class PerRow:
    """q0, q13: an output row for every bid."""

    def __init__(self, table: Table, made: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        self._table = table
        self._made = made

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: object, batch: Batch) -> tuple[object, Outcome]:
        changes = [Upsert(self._table, self._made(batch.frame))]
        return state, Outcome(changes, {Fate.APPLIED: batch.height})

    def provisional(self, state: object) -> list[Changes]:
        return []


class Windowed:
    """Windows of bids; `made` makes the stored rows of what a batch changed."""

    def __init__(
        self,
        table: Table,
        windows: Callable[[], Windows],
        made: Callable[[pl.DataFrame], pl.DataFrame] = lambda changed: changed,
        stamped: Callable[[Batch], tuple[pl.DataFrame, int]] = lambda batch: (
            batch.frame,
            batch.watermark_ms,
        ),
    ) -> None:
        self._table = table
        self._windows = windows
        self._made = made
        self._stamped = stamped

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Windows:
        return self._windows()

    def fold(self, state: Windows, batch: Batch) -> tuple[Windows, Outcome]:
        windows, update = state.add(*self._stamped(batch))
        late = update.late.height
        outcome = Outcome(
            changes=self._changes(update),
            counts={Fate.APPLIED: batch.height - late, Fate.LATE: late},
            late={BID.fullname: update.late} if late else {},
            open_until_ms=update.open_until_ms,
            open_from_offset=update.open_from_offset,
        )
        return windows, outcome

    def _changes(self, update: Update) -> list[Changes]:
        gone = update.deleted.height
        deleted = [_delete(self._table, update.deleted)] if gone else []
        return [
            *deleted,
            Upsert(self._table, self._made(update.changed).select(*self._table.columns)),
        ]

    def provisional(self, state: Windows) -> list[Changes]:
        return []


def _delete(table: Table, keys: pl.DataFrame) -> Changes:
    return Delete(table, keys.select(*table.key))


def _hottest(changed: pl.DataFrame) -> pl.DataFrame:
    """q5: of every window that ended the auctions with the most bids."""
    return changed.filter(pl.col("num") == pl.col("num").max().over(START))


def _highest() -> Aggregate:
    """q7: the bids with the highest price, all of them."""

    def best(bids: pl.Expr, price: pl.Expr) -> pl.Expr:
        return bids.filter(price == price.max())

    return Aggregate(
        best(pl.struct("price", "auction", "bidder", TIME, "extra"), pl.col("price")),
        lambda name: best(pl.col(name).explode(), pl.col(name).explode().struct.field("price")),
    )


def _each_highest(changed: pl.DataFrame) -> pl.DataFrame:
    rows = changed.explode("best").unnest("best")
    place = pl.int_range(pl.len()).over(START).cast(_INT)
    return rows.with_columns(pl.col(TIME).cast(_INT), place.alias("place"))


def _by_clock(clock_ms: Callable[[], int]) -> Callable[[Batch], tuple[pl.DataFrame, int]]:
    """q12: a batch's rows with the time at which they are processed, which is their watermark too.
    No fold of a system may do that: what it stores would depend on when it ran. Here the cost of
    the windows is measured.
    """

    def stamped(batch: Batch) -> tuple[pl.DataFrame, int]:
        now_ms = clock_ms()
        now = pl.lit(now_ms, _INT)
        return batch.frame.with_columns(now.alias("clock_ms"), now.alias(WATERMARK)), now_ms

    return stamped


def _with_value(values: pl.Series) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """q13: the side input by position, one gather a batch."""

    def made(bids: pl.DataFrame) -> pl.DataFrame:
        value = values.gather(bids["auction"] % SIDE_ROWS).alias("value")
        return bids.select("auction", "bidder", "price", TIME).with_columns(value)

    return made


def _bands() -> dict[str, Aggregate]:
    price, (low, high) = pl.col("price"), BANDS

    def rows(chosen: pl.Expr) -> Aggregate:
        return Aggregate(chosen.sum().cast(_INT), lambda name: pl.col(name).sum())

    return {
        "total_bids": Count(),
        "rank1_bids": rows(price < low),
        "rank2_bids": rows((price >= low) & (price < high)),
        "rank3_bids": rows(price >= high),
        "min_price": Min("price"),
        "max_price": Max("price"),
        "sum_price": Sum("price"),
    }


def _merged_sessions(rows: pl.LazyFrame) -> pl.LazyFrame:
    """q11: a bidder's sessions of all partitions, joined where they touch. Exact: two bids belong
    together iff a chain of bids leads from one to the other, whichever partitions they are in.
    """
    line = rows.sort("bidder", START)
    reached = pl.col(END).cum_max().over("bidder").shift().over("bidder")
    begins = (pl.col(START) > reached).fill_null(value=True)
    return (
        line.with_columns(begins.cum_sum().alias("session"))
        .group_by("session")
        .agg(
            pl.col("bidder").first(),
            pl.col("bid_count").sum(),
            pl.col(START).min(),
            pl.col(END).max(),
        )
    )


def _statistics(rows: pl.LazyFrame) -> pl.LazyFrame:
    average = pl.col("sum_price") // pl.col("total_bids")
    day = pl.from_epoch(START, "ms").dt.strftime("%Y-%m-%d")
    return rows.with_columns(average.alias("avg_price"), day.alias("day"))


def _top(column: str) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    """Of every window the rows with the greatest value."""
    return lambda rows: rows.filter(pl.col(column) == pl.col(column).max().over(START))


def _table(name: str, key: Mapping[str, object], values: Mapping[str, object]) -> Table:
    timed = next(iter(key)) == START
    return Table(name, key, values, bucket=(START,) if timed else (), time=START if timed else None)


def _query_5() -> Query:
    spec = Spec(("auction",), TIME, {"num": Count()}, Emit.FINAL)
    table = _table("q5", {START: _INT, "auction": _INT}, {END: _INT, "num": _INT})
    fold = Windowed(table, lambda: hopping(spec, WINDOW_MS, SLIDE_MS), _hottest)
    return Query(fold, table, ("auction", TIME), _top("num"), closed_only=True)


def _query_7() -> Query:
    spec = Spec((), TIME, {"best": _highest()}, Emit.FINAL)
    values = {END: _INT, "price": _INT, "auction": _INT, "bidder": _INT, TIME: _INT}
    table = _table("q7", {START: _INT, "place": _INT}, {**values, "extra": pl.String})
    fold = Windowed(table, lambda: tumbling(spec, WINDOW_MS), _each_highest)
    columns = ("auction", "bidder", "price", TIME, "extra")
    return Query(fold, table, columns, _top("price"), closed_only=True)


def _query_11() -> Query:
    spec = Spec(("bidder",), TIME, {"bid_count": Count()})
    table = _table("q11", {"bidder": _INT, START: _INT}, {END: _INT, "bid_count": _INT})
    fold = Windowed(table, lambda: session(spec, GAP_MS))
    return Query(fold, table, ("bidder", TIME), _merged_sessions)


def query_12(clock_ms: Callable[[], int]) -> Query:
    """q12 on any clock; a test has one of its own."""
    spec = Spec(("bidder",), "clock_ms", {"bid_count": Count()})
    table = _table("q12", {START: _INT, "bidder": _INT}, {END: _INT, "bid_count": _INT})
    fold = Windowed(table, lambda: tumbling(spec, WINDOW_MS), stamped=_by_clock(clock_ms))
    return Query(fold, table, ("bidder", TIME), _weighted)


def _weighted(rows: pl.LazyFrame) -> pl.LazyFrame:
    """What does not depend on the clock."""
    bids = pl.col("bid_count")
    return rows.select(bids.sum(), (pl.col("bidder") * bids).sum().alias("weighted"))


def _query_13() -> Query:
    columns = {"auction": _INT, "bidder": _INT, "price": _INT, TIME: pl.Datetime("ms", "UTC")}
    table = _table("q13", columns, {"value": pl.String})
    fold = PerRow(table, _with_value(pl.Series(side_table())))
    return Query(fold, table, tuple(columns))


def _query_0() -> Query:
    columns = ("auction", "bidder", "price", TIME, "extra")
    table = _table("q0", {name: BID.dtypes[name] for name in columns}, {})
    return Query(PerRow(table, lambda bids: bids.select(columns)), table, columns)


def _query_17() -> Query:
    aggregates = _bands()
    spec = Spec(("auction",), TIME, aggregates)
    table = _table("q17", {START: _INT, "auction": _INT}, dict.fromkeys(aggregates, _INT))
    fold = Windowed(table, lambda: tumbling(spec, DAY_MS))
    return Query(fold, table, ("auction", "price", TIME), _statistics)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


QUERIES: Mapping[str, Callable[[], Query]] = {
    "q0": _query_0,
    "q5": _query_5,
    "q7": _query_7,
    "q11": _query_11,
    "q12": lambda: query_12(_now_ms),
    "q13": _query_13,
    "q17": _query_17,
}


def answer(query: Query, stored: pl.DataFrame, until_ms: int) -> pl.DataFrame:
    """Nexmark's columns of the stored rows of all partitions, for windows that end by `until_ms`
    where a query gives out what ended.
    """
    if query.answer is None:
        raise TypeError(f"{query.table.name} stores nothing")
    rows = stored.lazy()
    if query.closed_only:
        rows = rows.filter(pl.col(END) <= until_ms)
    return query.answer(rows).select(OUTPUT[query.table.name]).collect()


def projection(name: str, query: Query, topic: Topic) -> Projection:
    """A query over a topic, as the lane runs it."""
    model = f"bench-nexmark-{name}"
    return Projection(
        name=model,
        topic=topic,
        fold=query.fold,
        model=ReadModel(model, (query.table,)),
        store="memory" if query.answer is None else "redis",
        columns={BID.fullname: query.columns},
    )
