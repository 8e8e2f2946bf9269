"""The small product that a simulation runs: a bank, what is derived from it, and read models.

commands → decider → events ─┬→ balances        (read model)
                             └→ derivation → moves → totals (read model)
clicks → windows (read model, event time)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from streams.runtime.batch import OFFSET, Batch
from streams.runtime.decider.testing import memory_codec
from streams.runtime.derivation.fold import as_projection
from streams.runtime.derivation.rules import Derivation
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.sink import Changes, Rank, Ranking, RankMerge, ReadModel, Table, Upsert
from streams.runtime.topic import Topic
from streams.runtime.window import tumbling
from tests.runtime import clicks
from tests.runtime.decider.bank import Deposited, Held, bank, record

DECIDER = bank("sim.bank", partitions=2, in_flight_max=16, snapshot_events=25, deadline_ms=1_500)
EVENTS = DECIDER.events


@dataclass(frozen=True, slots=True)
class Moved:
    place: str
    amount: int


MOVED = record(Moved, {"place": str, "amount": int})
MOVES = Topic(
    "sim.moves", (MOVED,), "place", None, 2, "tests", "Money moved, by place.",
    derived_from=(EVENTS.name,),
)  # fmt: skip


def moved(name: str, row: Any) -> list[Moved]:
    """What one event leads to, said once more in plain words for the oracle."""
    if name == "Deposited":
        return [Moved(f"p{row.amount % 5}", row.amount)]
    if name == "Held":
        return [Moved(f"p{row.amount % 5}", -row.amount), Moved("held", row.amount)]
    return []


def _derive(batch: Batch) -> dict[str, pl.DataFrame]:
    place = pl.format("p{}", pl.col("amount") % 5)
    deposits = batch.of(f"headrace.bank.{Deposited.__name__}").select(
        place.alias("place"), "amount", OFFSET, pl.lit(0).alias("n")
    )
    holds = batch.of(f"headrace.bank.{Held.__name__}")
    taken = holds.select(place.alias("place"), -pl.col("amount"), OFFSET, pl.lit(0).alias("n"))
    held = holds.select(pl.lit("held").alias("place"), "amount", OFFSET, pl.lit(1).alias("n"))
    rows = pl.concat([deposits, taken, held]).sort(OFFSET, "n").drop("n")
    return {MOVED.fullname: rows}


DERIVATION = Derivation("sim-moves", EVENTS, MOVES, _derive)
_CODEC = memory_codec(MOVES)


def encode_moves(_: str, frame: pl.DataFrame) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of derived rows."""
    for place, amount in frame.select("place", "amount").iter_rows():
        yield place.encode(), _CODEC.encode(Moved(place, amount))[1]


DERIVING: Projection = as_projection(DERIVATION, encode_moves)

BALANCES = Table("balances", {"account": pl.String}, {"balance": pl.Int64, "holds": pl.Int64})
TOTALS = Ranking("totals", {"board": pl.String}, "place")
State = Mapping[str, tuple[int, int]]


class Balances:
    """Events → balance and number of holds of each account, added up."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> State:
        return _rows(stored[BALANCES.name], BALANCES)

    def fold(self, state: State, batch: Batch) -> tuple[State, Outcome]:
        new, applied = dict(state), 0
        for _, row in batch.rows():
            if isinstance(row, Deposited):
                balance, holds = new.get(row.account, (0, 0))
                new[row.account] = (balance + row.amount, holds)
            elif isinstance(row, Held):
                balance, holds = new.get(row.account, (0, 0))
                new[row.account] = (balance, holds + 1)
            else:
                continue
            applied += 1
        return new, _outcome(BALANCES, state, new, applied, batch.height)

    def provisional(self, state: State) -> list[Changes]:
        return []


class Totals:
    """Moves → totals by place. The *store* adds up: what lands twice shows."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows = batch.frame.group_by(pl.lit("all").alias("board"), "place").agg(
            pl.col("amount").sum().alias("score"), pl.col(OFFSET).max().alias("reached_ms")
        )
        changes = [Rank(TOTALS, RankMerge.SUM, rows)] if rows.height else []
        return None, Outcome(changes, {Fate.APPLIED: batch.height})

    def provisional(self, state: None) -> list[Changes]:
        return []


def _rows(stored: pl.DataFrame, table: Table) -> State:
    columns = stored.select(*table.columns).iter_rows()
    return {key: (one, two) for key, one, two in columns}


def _outcome(table: Table, old: State, new: State, applied: int, height: int) -> Outcome:
    changed = [(key, *value) for key, value in new.items() if old.get(key) != value]
    rows = pl.DataFrame(changed, schema=table.columns, orient="row")
    counts = {Fate.APPLIED: applied, Fate.FILTERED: height - applied}
    return Outcome([Upsert(table, rows)] if changed else [], counts)


def _projection(name: str, topic: Topic, fold: Any, table: Table | Ranking) -> Projection:
    restores = (table.name,) if isinstance(table, Table) else ()
    return Projection(name, topic, fold, ReadModel(name, (table,)), "memory", restores)


WINDOW_MS, LATENESS_MS = 1_000, 2_000
CLICKS = clicks.projection(
    tumbling(clicks.spec(allowed_lateness_ms=LATENESS_MS), WINDOW_MS), horizon_ms=5_000, bound=200
)
PROJECTIONS = (
    _projection("sim-balances", EVENTS, Balances(), BALANCES),
    _projection("sim-totals", MOVES, Totals(), TOTALS),
    CLICKS,
)
