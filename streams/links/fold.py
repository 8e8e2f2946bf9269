"""Events → links as they stand, and clicks with their fate and device. Columns, without state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from schemas.links.agents import BOTS
from schemas.links.events import LINK_CHANGED, LINK_CLICKED
from sinks import links as store
from streams.links.countries import Countries
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

    The rule is applied here and not where clicks are taken, and so are countries found, so another
    rule counts the past anew, and another table of networks finds its countries anew:
    `headrace rebuild links-clicks`. `countries` gives the table when a partition starts.
    """

    def __init__(self, bots: str = BOTS, countries: Callable[[], Countries] = Countries) -> None:
        self._bots = bots
        self._countries = countries

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        self._countries()  # a file that cannot be read ends the worker now and sets no click aside

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        agent = pl.col("user_agent")
        ignored = (pl.col("method") != "GET") | agent.str.contains(self._bots)
        device = pl.lit("other")
        for name, pattern in reversed(DEVICES):
            device = pl.when(agent.str.contains(pattern)).then(pl.lit(name)).otherwise(device)
        bare = agent.str.contains("Android") & ~agent.str.contains("(?i)mobi")
        clicks = batch.of(LINK_CLICKED.fullname)
        rows = clicks.with_columns(
            pl.when(ignored)
            .then(pl.lit(Fate.FILTERED.value))
            .otherwise(pl.lit(Fate.APPLIED.value))
            .alias("fate"),
            pl.when(bare).then(pl.lit("tablet")).otherwise(device).alias("device"),
            self._country(clicks["network"]).alias("country"),
            pl.col(OFFSET).alias("offset"),
        )
        kept = rows.select(*store.CLICKS.columns)
        counts: dict[str, int] = dict(rows.group_by("fate").len().iter_rows())
        changes: list[Changes] = [Upsert(store.CLICKS, kept)] if kept.height else []
        return None, Outcome(changes=changes, counts=counts)

    def _country(self, networks: pl.Series) -> pl.Expr:
        """Of clicks with a network, what the table says of it; of others, what was told of them."""
        known = networks.filter(networks != "").unique()
        told = pl.col("country")
        if known.is_empty():
            return told
        return pl.col("network").replace_strict(known, self._countries().of(known), default=told)
