"""What the drivers are asked to store: three shapes of writes, the same frames for every contender.

`totals`: absolute totals by window and campaign, every row written twice (the later total counts).
`rankings`: the latest scores of members on a few boards. `events`: clicks, kept one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from streams.runtime.sink import Rank, Ranking, RankMerge, Table, Upsert
from tests.bench.clicks import CAMPAIGNS, START_MS, WINDOW_MS, frames

SEED = 13
BOARDS, PLAYERS = 20, 50_000
BUCKET_ROWS = 100
"""Events stored together: what the raw Cassandra client is fastest with."""

TOTALS = Table(
    name="totals",
    key={"start_ms": pl.Int64, "campaign_id": pl.Int64},
    values={"clicks": pl.Int64, "cost_micros": pl.Int64},
    bucket=("start_ms",),
)
RANKINGS = Ranking(name="rankings", board={"board": pl.String}, member="player_id")
EVENTS = Table(
    name="events",
    key={"bucket": pl.Int64, "offset": pl.Int64},
    values={
        "click_id": pl.String,
        "ad_id": pl.Int64,
        "campaign_id": pl.Int64,
        "user_id": pl.Int64,
        "event_time": pl.Datetime("ms", "UTC"),
        "country": pl.String,
        "cost_micros": pl.Int64,
    },
    bucket=("bucket",),
    append=True,
)
SHAPES: dict[str, Table | Ranking] = {one.name: one for one in (TOTALS, RANKINGS, EVENTS)}


@dataclass(frozen=True)
class Stored:
    """What must be found after all writes: rows, and the sum of what they add up to."""

    rows: int
    total: int

    @classmethod
    def of(cls, table: Table | Ranking, found: pl.DataFrame) -> Stored:
        """Of the rows that are stored."""
        return cls(found.height, int(found[summed(table)].sum()))


def summed(table: Table | Ranking) -> str:
    """The column that is added up to check."""
    return "score" if isinstance(table, Ranking) else "cost_micros"


def made(shape: str, records: int, rows: int) -> list[pl.DataFrame]:
    """The frames of a run, `rows` rows a write; a function of the arguments alone."""
    match shape:
        case "totals":
            return [_totals(n, rows) for n in range(max(1, records // rows))]
        case "rankings":
            return [_rankings(n, rows) for n in range(max(1, records // rows))]
        case _:
            return list(_events(records, rows))


def wanted(table: Table | Ranking, writes: Sequence[pl.DataFrame]) -> Stored:
    """What these writes leave behind."""
    key = [*table.board, table.member] if isinstance(table, Ranking) else list(table.key)
    return Stored.of(table, pl.concat(writes).unique(key, keep="last"))


def change(table: Table | Ranking, rows: pl.DataFrame) -> Upsert | Rank:
    """The change that stores a frame."""
    if isinstance(table, Ranking):
        return Rank(table, RankMerge.LAST, rows)
    return Upsert(table, rows)


def _totals(write: int, rows: int) -> pl.DataFrame:
    """Half of the windows are those of the write before, with later totals."""
    windows = max(2, rows // CAMPAIGNS)
    first = write * (windows // 2)
    start = np.repeat(np.arange(first, first + windows) * WINDOW_MS + START_MS, CAMPAIGNS)
    draw = np.random.default_rng([SEED, write])
    return pl.DataFrame(
        {
            "start_ms": start,
            "campaign_id": np.tile(np.arange(CAMPAIGNS), windows),
            "clicks": draw.integers(1_000, size=len(start)),
            "cost_micros": draw.integers(1_000_000, size=len(start)),
        }
    )


def _rankings(write: int, rows: int) -> pl.DataFrame:
    """Members drawn anew for every write; later writes have later times."""
    draw = np.random.default_rng([SEED, write])
    taken = draw.choice(BOARDS * PLAYERS, size=rows, replace=False)
    board, player = np.divmod(taken, PLAYERS)
    names = {"board": ("b", board), "player_id": ("p", player)}
    columns = [
        pl.format(prefix + "-{}", pl.lit(pl.Series(numbers))).alias(name)
        for name, (prefix, numbers) in names.items()
    ]
    return pl.select(*columns).with_columns(
        pl.Series("score", draw.integers(1_000_000, size=rows)),
        pl.lit(START_MS + write, pl.Int64).alias("reached_ms"),
    )


def _events(records: int, rows: int) -> Iterator[pl.DataFrame]:
    at = 0
    for chunk in frames(records):
        offset = pl.Series("offset", np.arange(at, at + chunk.height))
        at += chunk.height
        whole = chunk.with_columns(offset, (offset // BUCKET_ROWS).alias("bucket"))
        yield from whole.select(*EVENTS.columns).iter_slices(rows)
