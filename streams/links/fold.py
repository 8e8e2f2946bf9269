"""Events → links as they stand, and clicks with their fate and device. Columns, without state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from schemas.links.agents import BOTS
from schemas.links.events import LINK_CHANGED, LINK_CLICKED
from sinks import links as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Table, Upsert

DEVICES: Final = (
    ("tablet", r"(?i)ipad|tablet|kindle|silk/|playbook"),
    ("mobile", r"(?i)mobi|iphone|ipod|android|phone"),
    ("desktop", r"(?i)windows|macintosh|x11|cros "),
)
"""The first that fits; Android without "Mobile" is a tablet."""


class _Stateless:
    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def provisional(self, state: None) -> list[Changes]:
        return []


class KeepLinks(_Stateless):
    """The fold of both copies of the link table: the last word about each link."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows = batch.of(LINK_CHANGED.fullname)
        kept = rows.select(*self._table.columns).unique("code", keep="last", maintain_order=True)
        counts = {
            Fate.APPLIED.value: rows.height,
            Fate.FILTERED.value: batch.height - rows.height,
        }
        changes: list[Changes] = [Upsert(self._table, kept)] if kept.height else []
        return None, Outcome(changes=changes, counts=counts)


class KeepClicks(_Stateless):
    """Every click with its fate: what a HEAD asks, or a bot, is kept and not counted.

    The rule is applied here and not where clicks are taken, so another rule counts the past anew:
    `headrace rebuild links-clicks`.
    """

    def __init__(self, bots: str = BOTS) -> None:
        self._bots = bots

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        agent = pl.col("user_agent")
        ignored = (pl.col("method") != "GET") | agent.str.contains(self._bots)
        device = pl.lit("other")
        for name, pattern in reversed(DEVICES):
            device = pl.when(agent.str.contains(pattern)).then(pl.lit(name)).otherwise(device)
        bare = agent.str.contains("Android") & ~agent.str.contains("(?i)mobi")
        rows = batch.of(LINK_CLICKED.fullname).with_columns(
            pl.when(ignored)
            .then(pl.lit(Fate.FILTERED.value))
            .otherwise(pl.lit(Fate.APPLIED.value))
            .alias("fate"),
            pl.when(bare).then(pl.lit("tablet")).otherwise(device).alias("device"),
            pl.col(OFFSET).alias("offset"),
        )
        kept = rows.select(*store.CLICKS.columns)
        counts: dict[str, int] = dict(rows.group_by("fate").len().iter_rows())
        changes: list[Changes] = [Upsert(store.CLICKS, kept)] if kept.height else []
        return None, Outcome(changes=changes, counts=counts)
