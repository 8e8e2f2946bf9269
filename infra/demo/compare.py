"""What was stored against what was recounted, table by table and row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import polars as pl

from infra.demo.ground import rows as rows_of
from infra.demo.recount import BOARD, MINUTE, PERIOD, TOTALS, Ads, Scores
from sinks.open import open_sink
from streams import catalog
from streams.runtime import kafka
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink
from streams.runtime.topic import Topic


@dataclass(frozen=True)
class Check:
    """One comparison: two numbers, and how many rows differ behind them."""

    where: str
    what: str
    recounted: int
    stored: int
    different: int = 0

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return self.recounted == self.stored and not self.different


@contextmanager
def opened(agent: str, settings: Settings) -> Iterator[tuple[Projection, Sink]]:
    """A read model's projection and sink."""
    _, projection = catalog.projection(agent)
    sink = open_sink(projection.store, projection.model, settings)
    try:
        yield projection, sink
    finally:
        sink.close()


def ads(settings: Settings, recount: Ads) -> Iterator[Check]:
    """Both read models of ads, and the late side output."""
    with opened("ads-windows", settings) as (projection, sink):
        for table, key in (
            ("minutes", ("campaign_id", "ad_id", "minute_ms")),
            ("hours", ("campaign_id", "hour_ms")),
        ):
            stored = stored_in(sink, table, lambda part, key=key: _summed(part, key, TOTALS))  # type: ignore[misc]
            stored = _summed(stored, key, TOTALS)
            expected: pl.DataFrame = getattr(recount, table)
            yield from tables_of(f"ads-windows {table}", expected, stored, key, TOTALS)
        yield from fates_of("ads-windows", recount.fates, sink)
        yield late_of(settings, projection.topic, recount.fates["late"])
    with opened("ads-events", settings) as (_, sink):
        yield from fates_of("ads-events", recount.fates, sink)
        yield from _events(sink, recount)


def _events(sink: Sink, recount: Ads) -> Iterator[Check]:
    """The history: rows by kind and fate, and the minutes that its applied rows add up to."""
    key = ("kind", "fate", "campaign_id", "ad_id", "minute_ms")
    minute = pl.col("event_time").dt.epoch("ms") // MINUTE * MINUTE

    def rows(part: pl.DataFrame) -> pl.DataFrame:
        named = part.with_columns(minute.alias("minute_ms"), pl.lit(1, pl.Int64).alias("rows"))
        return _summed(named, key, ("rows", "cost_micros"))

    stored = _summed(stored_in(sink, "events", rows), key, ("rows", "cost_micros"))
    by_kind = _summed(stored, ("kind", "fate"), ("rows",))
    yield from tables_of("ads-events", recount.kinds, by_kind, ("kind", "fate"), ("rows",))
    click = pl.col("kind") == "click"
    minutes = stored.filter(pl.col("fate") == "applied").with_columns(
        pl.when(click).then(0).otherwise("rows").alias("impressions"),
        pl.when(click).then("rows").otherwise(0).alias("clicks"),
    )
    by = ("campaign_id", "ad_id", "minute_ms")
    yield from tables_of(
        "ads-events minutes", recount.minutes, _summed(minutes, by, TOTALS), by, TOTALS
    )


def leaderboard(settings: Settings, recount: Scores) -> Iterator[Check]:
    """All boards of all time, days and weeks, with when each score was reached."""
    with opened("leaderboard", settings) as (projection, sink):
        for table, key, expected in (
            ("all", BOARD, recount.boards),
            ("periods", PERIOD, recount.periods),
        ):
            stored = stored_in(sink, table, lambda part: part)
            yield from tables_of(
                f"leaderboard {table}", expected, stored, key, ("score", "reached_ms")
            )
        yield from fates_of("leaderboard", recount.fates, sink)
        yield late_of(settings, projection.topic, recount.fates["late"])


def counts(sink: Sink) -> Counter[str]:
    """Rows by fate, as the live version's positions say."""
    total: Counter[str] = Counter()
    for position in sink.positions(sink.live_version()).values():
        total.update(position.counts)
    return total


def stored_in(
    sink: Sink, table: str, reduced: Callable[[pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """A table of the live version, every frame reduced as it comes, many small ones at a time."""
    parts: list[pl.DataFrame] = []
    held: list[pl.DataFrame] = []
    for frame in sink.rows(sink.live_version(), table):
        held.append(frame)
        if sum(part.height for part in held[-100:]) >= 50_000 or len(held) >= 20_000:
            parts.append(reduced(pl.concat(held)))
            held = []
    if held or not parts:
        schema = {**sink.model.table(table).columns, "_partition": pl.Int32}
        parts.append(reduced(pl.concat(held) if held else pl.DataFrame(schema=schema)))
    return pl.concat(parts)


def _summed(rows: pl.DataFrame, key: tuple[str, ...], values: tuple[str, ...]) -> pl.DataFrame:
    return rows.group_by(key).agg(pl.col(name).sum() for name in values)


def tables_of(
    where: str,
    expected: pl.DataFrame,
    stored: pl.DataFrame,
    key: tuple[str, ...],
    values: tuple[str, ...],
) -> Iterator[Check]:
    """Rows of two tables by key, then the totals of their columns (of times there is none)."""
    both = expected.select(*key, *values).join(
        stored.select(*key, *values), on=key, how="full", coalesce=True, suffix="_stored"
    )
    odd = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_stored")) for name in values)
    different = both.filter(odd).height
    yield Check(where, "rows", expected.height, stored.height, different)
    for name in values:
        if not name.endswith("_ms"):
            yield Check(where, name, int(expected[name].sum()), int(stored[name].sum()))


def fates_of(agent: str, expected: Mapping[str, int], sink: Sink) -> Iterator[Check]:
    """Rows by fate, as the live positions say."""
    found = counts(sink)
    for fate in sorted({*expected, *found}):
        yield Check(f"{agent} fates", fate, expected.get(fate, 0), found.get(fate, 0))


def late_of(settings: Settings, topic: Topic, expected: int) -> Check:
    """The late side output holds every late row."""
    side = rows_of(kafka.admin(settings.kafka), topic.late, topic.partitions)
    return Check(topic.late, "records", expected, side)
