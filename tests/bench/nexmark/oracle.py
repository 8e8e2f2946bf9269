"""What every query must answer, from the generated columns alone: whole relations, no batches, no
watermark, none of the windows' code. The sums of an answer's columns are compared with an engine's.

An answer is a row count and the sum of each column: times in milliseconds, strings by their length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import polars as pl

from tests.bench.nexmark.bids import SIDE_ROWS, WATERMARK_MS, side_table

GAP_MS = WINDOW_MS = 10_000
SLIDE_MS = 2_000
DAY_MS = 86_400_000
BANDS = (10_000, 1_000_000)
MARGIN_MS = 500

Sums = Mapping[str, int]


def sums(answer: pl.DataFrame) -> dict[str, int]:
    """Rows, and the sum of every column."""
    strings = [name for name, dtype in answer.schema.items() if dtype == pl.String]
    lengths = answer.with_columns(pl.col(strings).str.len_bytes().cast(pl.Int64))
    totals = lengths.select(pl.all().cast(pl.Int64).sum()).row(0, named=True)
    return {"rows": answer.height, **totals}


def closed_ms(bids: pl.DataFrame) -> int:
    """An event time up to which every partition's windows are closed at the end of the log: each
    of them ends within `MARGIN_MS` of the last bid.
    """
    return int(bids["date_time"].max()) - WATERMARK_MS - MARGIN_MS  # type: ignore[arg-type]


def expected(query: str, bids: pl.DataFrame, until_ms: int | None = None) -> dict[str, int]:
    """The sums of a query's answer; of q5 and q7 only windows that end by `until_ms`, if given."""
    wanted = sums(QUERIES[query](bids, until_ms).select(OUTPUT[query]))
    if query == "q12":
        del wanted["rows"]  # how many there are depends on the clock
    return wanted


def agrees(found: Sums, wanted: Sums) -> bool:
    """Whether an engine's sums are the expected ones."""
    return {name: found.get(name) for name in wanted} == wanted


def _q0(bids: pl.DataFrame, _: int | None) -> pl.DataFrame:
    return bids.select("auction", "bidder", "price", "date_time", "extra")


def _q5(bids: pl.DataFrame, until_ms: int | None) -> pl.DataFrame:
    last = pl.col("date_time") // SLIDE_MS * SLIDE_MS
    panes = bids.group_by("auction", last.alias("pane")).len()
    hops = [panes.with_columns(start=pl.col("pane") - n) for n in range(0, WINDOW_MS, SLIDE_MS)]
    counts = pl.concat(hops).group_by("auction", "start").agg(num=pl.col("len").sum())
    ended = _by(counts, until_ms)
    return ended.filter(pl.col("num") == pl.col("num").max().over("start")).select("auction", "num")


def _q7(bids: pl.DataFrame, until_ms: int | None) -> pl.DataFrame:
    start = pl.col("date_time") // WINDOW_MS * WINDOW_MS
    best = bids.group_by(start.alias("start")).agg(pl.col("price").max())
    joined = bids.join(_by(best, until_ms), on="price")
    # As the query says it, both ends included.
    inside = pl.col("date_time").is_between(pl.col("start"), pl.col("start") + WINDOW_MS)
    return joined.filter(inside).select("auction", "price", "bidder", "date_time", "extra")


def _by(windows: pl.DataFrame, until_ms: int | None) -> pl.DataFrame:
    if until_ms is None:
        return windows
    return windows.filter(pl.col("start") + WINDOW_MS <= until_ms)


def _q11(bids: pl.DataFrame, _: int | None) -> pl.DataFrame:
    line = bids.select("bidder", "date_time").sort("bidder", "date_time")
    begins = (pl.col("date_time").diff() > GAP_MS) | (pl.col("bidder").diff() != 0)
    numbered = line.with_columns(session=begins.fill_null(value=True).cum_sum())
    return numbered.group_by("session").agg(
        bidder=pl.col("bidder").first(),
        bid_count=pl.len(),
        start_ms=pl.col("date_time").min(),
        end_ms=pl.col("date_time").max() + GAP_MS,
    )[["bidder", "bid_count", "start_ms", "end_ms"]]


def _q12(bids: pl.DataFrame, _: int | None) -> pl.DataFrame:
    """Which windows there are depends on the clock; what they add up to does not."""
    return bids.select(bid_count=pl.len(), weighted=pl.col("bidder").sum())


def _q13(bids: pl.DataFrame, _: int | None) -> pl.DataFrame:
    side = pl.DataFrame({"key": range(SIDE_ROWS), "value": side_table()})
    joined = bids.with_columns(key=pl.col("auction") % SIDE_ROWS).join(side, on="key")
    return joined.select("auction", "bidder", "price", "date_time", "value")


def _q17(bids: pl.DataFrame, _: int | None) -> pl.DataFrame:
    price, (low, high) = pl.col("price"), BANDS
    day = pl.from_epoch("date_time", "ms").dt.strftime("%Y-%m-%d").alias("day")
    return bids.group_by("auction", day).agg(
        total_bids=pl.len(),
        rank1_bids=(price < low).sum(),
        rank2_bids=((price >= low) & (price < high)).sum(),
        rank3_bids=(price >= high).sum(),
        min_price=price.min(),
        max_price=price.max(),
        avg_price=price.sum() // pl.len(),
        sum_price=price.sum(),
    )


QUERIES: Mapping[str, Callable[[pl.DataFrame, int | None], pl.DataFrame]] = {
    "q0": _q0,
    "q5": _q5,
    "q7": _q7,
    "q11": _q11,
    "q12": _q12,
    "q13": _q13,
    "q17": _q17,
}

OUTPUT: Mapping[str, tuple[str, ...]] = {
    "q0": ("auction", "bidder", "price", "date_time", "extra"),
    "q5": ("auction", "num"),
    "q7": ("auction", "price", "bidder", "date_time", "extra"),
    "q11": ("bidder", "bid_count", "start_ms", "end_ms"),
    "q12": ("bid_count", "weighted"),
    "q13": ("auction", "bidder", "price", "date_time", "value"),
    "q17": (
        *("auction", "day", "total_bids", "rank1_bids", "rank2_bids", "rank3_bids"),
        *("min_price", "max_price", "avg_price", "sum_price"),
    ),
}
"""The columns of every answer, in Nexmark's order."""
