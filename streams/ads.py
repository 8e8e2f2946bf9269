"""Ad clicks: count impressions and clicks once each, in the minute they happened.

An event is, in this order, **quarantined** (it costs what no click costs), **filtered** (a bot's),
**late** (its minute closed, with the allowed lateness, before it came), a **duplicate** (same id,
same content), **filtered** (one click too many of one user on one ad in one minute), or
**applied**. The same id with other content is another event, kept under an id of its own. All of
it depends on the log alone, so a replay is a proof.

Events are keyed by user: a repeated delivery and a hammering user land in one partition, while a
hot campaign spreads over all of them; readers add the partitions up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from schemas.ads.events import AD_CLICKED, AD_IMPRESSED, EVENTS
from sinks import ads as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection, System
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.sink import Changes, Upsert
from streams.runtime.watermark import milliseconds
from streams.runtime.window import Count, PaneWindows, Spec, Sum, Update, tumbling

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
LATENESS_MS = EVENTS.allowed_lateness_ms
RETENTION_MS = 400 * 24 * HOUR_MS
CLICKS_MAX = 10
"""Clicks of one user on one ad in one minute that count; a person does not do more."""
COST_MAX_MICROS = 10**12
"""A million currency units; sums of a window stay below 2**63 for nine million such clicks."""
BOTS = r"(?i)(^|[^u])bot\b|crawl|spider|slurp|curl/|wget/|python-requests|headless"
"""User agents that say themselves that nobody looked; `[^u]` spares the phones named Cubot."""

SHARED = ("user_id", "campaign_id", "ad_id", "event_time", "country")
CONTENT = (
    *("user_id", "campaign_id", "ad_id", "country"),
    *("cost_micros", "user_agent", "impression_id"),
)
IDENTITY = "identity"
"""Kind and id: a click and an impression may have the same id."""
FATE = "fate"


@dataclass(frozen=True)
class Judge:
    """What must be remembered to tell an event's fate; immutable."""

    seen: SeenIds
    clicks: PaneWindows

    @classmethod
    def start(cls) -> Judge:
        """A judge that has seen nothing."""
        spec = Spec(
            ("user_id", "ad_id"), "event_time", {"clicks": Count()}, allowed_lateness_ms=LATENESS_MS
        )
        seen = SeenIds(IDENTITY, "event_time", CONTENT, MINUTE_MS + LATENESS_MS)
        return cls(seen, tumbling(spec, MINUTE_MS))

    def judge(self, batch: Batch) -> tuple[Judge, pl.DataFrame]:
        """All events of a batch in offset order, with `fate`."""
        rows = traffic(batch)
        time = milliseconds(rows["event_time"])
        rows = rows.with_columns(
            pl.when(~pl.col("cost_micros").is_between(0, COST_MAX_MICROS))
            .then(pl.lit(Fate.QUARANTINED.value))
            .when(pl.col("user_agent").str.contains(BOTS))
            .then(pl.lit(Fate.FILTERED.value))
            .when(time // MINUTE_MS * MINUTE_MS + MINUTE_MS + LATENESS_MS <= rows[WATERMARK])
            .then(pl.lit(Fate.LATE.value))
            .alias(FATE)
        )
        seen, rows = self._repeats(rows, batch.watermark_ms)
        clicks, rows = self._excess(rows, batch.watermark_ms)
        return Judge(seen, clicks), rows.with_columns(pl.col(FATE).fill_null(Fate.APPLIED.value))

    def _repeats(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[SeenIds, pl.DataFrame]:
        """Judges repeats among the rows without a fate; a reused id gets the offset behind it."""
        open_ = pl.col(FATE).is_null()
        asked = rows.filter(open_)
        identity = pl.format("{}/{}", "kind", "event_id").alias(IDENTITY)
        seen, verdict = self.seen.check(asked.with_columns(identity), watermark_ms)
        judged = asked.with_columns(
            pl.when(verdict == Verdict.DUPLICATE).then(pl.lit(Fate.DUPLICATE.value)).alias(FATE),
            pl.when(verdict == Verdict.CONFLICT)
            .then(pl.format("{}~{}", "event_id", OFFSET))
            .otherwise("event_id")
            .alias("event_id"),
        )
        return seen, _together(rows.filter(~open_), judged)

    def _excess(self, rows: pl.DataFrame, watermark_ms: int) -> tuple[PaneWindows, pl.DataFrame]:
        """Judges the clicks without a fate: a user's first `CLICKS_MAX` on an ad in a minute pass.

        A click's number in its minute is what the minute had before the batch, plus its place
        within the batch, so that it is the same wherever the log is cut.
        """
        fresh = pl.col(FATE).is_null() & (pl.col("kind") == "click")
        asked = rows.filter(fresh)
        minute = (*self.clicks.spec.by, "start_ms")
        placed = asked.with_columns(
            pl.col("event_time").dt.truncate("1m").dt.epoch("ms").alias("start_ms")
        ).with_columns(
            pl.int_range(pl.len()).over(minute).alias("place"), pl.len().over(minute).alias("here")
        )
        clicks, update = self.clicks.add(asked, watermark_ms)
        before = pl.col("clicks") - pl.col("here")
        judged = placed.join(
            update.changed, on=minute, how="left", maintain_order="left"
        ).with_columns(
            pl.when(before + pl.col("place") >= CLICKS_MAX)
            .then(pl.lit(Fate.FILTERED.value))
            .alias(FATE)
        )
        return clicks, _together(rows.filter(~fresh), judged.select(rows.columns))


def traffic(batch: Batch) -> pl.DataFrame:
    """Impressions and clicks as one frame, in offset order."""
    return _together(
        batch.of(AD_IMPRESSED.fullname).select(
            pl.lit("impression").alias("kind"),
            pl.col("impression_id").alias("event_id"),
            *SHARED,
            pl.lit(0, pl.Int64).alias("cost_micros"),
            pl.lit(None, pl.String).alias("user_agent"),
            pl.lit(None, pl.String).alias("impression_id"),
            OFFSET,
            WATERMARK,
        ),
        batch.of(AD_CLICKED.fullname).select(
            pl.lit("click").alias("kind"),
            pl.col("click_id").alias("event_id"),
            *SHARED,
            "cost_micros",
            "user_agent",
            "impression_id",
            OFFSET,
            WATERMARK,
        ),
    )


def _together(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Rows of both, in offset order."""
    if not one.height or not other.height:
        return one if one.height else other
    return pl.concat([one, other.select(one.columns)]).sort(OFFSET)


def fates(rows: pl.DataFrame) -> dict[str, int]:
    """Rows by fate."""
    return dict(rows.group_by(FATE).len().iter_rows())


def _dead(rows: pl.DataFrame) -> dict[int, str]:
    reason = f"field cost_micros: not in 0..{COST_MAX_MICROS}"
    return dict.fromkeys(rows.filter(pl.col(FATE) == Fate.QUARANTINED)[OFFSET].to_list(), reason)


def _windows(by: tuple[str, ...], size_ms: int) -> PaneWindows:
    sums = {
        "impressions": Sum("impressions"),
        "clicks": Sum("clicks"),
        "cost_micros": Sum("cost_micros"),
    }
    return tumbling(Spec(by, "event_time", sums, allowed_lateness_ms=LATENESS_MS), size_ms)


@dataclass(frozen=True)
class Counting:
    """State of `CountByWindow`."""

    judge: Judge
    minutes: PaneWindows
    hours: PaneWindows


class CountByWindow:
    """Applied events → absolute totals per campaign, ad and minute, and per campaign and hour."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Counting:
        return Counting(
            Judge.start(),
            minutes=_windows(("campaign_id", "ad_id"), MINUTE_MS),
            hours=_windows(("campaign_id",), HOUR_MS),
        )

    def fold(self, state: Counting, batch: Batch) -> tuple[Counting, Outcome]:
        judge, rows = state.judge.judge(batch)
        counted = rows.filter(pl.col(FATE) == Fate.APPLIED).with_columns(
            (pl.col("kind") == "impression").cast(pl.Int64).alias("impressions"),
            (pl.col("kind") == "click").cast(pl.Int64).alias("clicks"),
        )
        minutes, by_minute = state.minutes.add(counted, batch.watermark_ms)
        hours, by_hour = state.hours.add(counted, batch.watermark_ms)
        late = rows.filter(pl.col(FATE) == Fate.LATE)
        outcome = Outcome(
            changes=_upserts(by_minute, by_hour),
            counts=fates(rows),
            late={EVENTS.name: late.select(OFFSET, WATERMARK)} if late.height else {},
            dead=_dead(rows),
            expire_before_ms={
                "minutes": batch.watermark_ms - RETENTION_MS,
                "hours": batch.watermark_ms - RETENTION_MS,
            },
            open_until_ms=_matters_until(rows, by_minute, by_hour),
            open_from_offset=judge.seen.open_from_offset,
        )
        return replace(state, judge=judge, minutes=minutes, hours=hours), outcome

    def provisional(self, state: Counting) -> list[Changes]:
        return []


def _upserts(by_minute: Update, by_hour: Update) -> list[Changes]:
    minutes = by_minute.changed.with_columns(
        (pl.col("start_ms") // HOUR_MS * HOUR_MS).alias("hour_ms"),
        pl.col("start_ms").alias("minute_ms"),
    )
    hours = by_hour.changed.rename({"start_ms": "hour_ms"})
    tables = ((store.MINUTES, minutes), (store.HOURS, hours))
    return [Upsert(table, rows.select(*table.columns)) for table, rows in tables if rows.height]


def _matters_until(rows: pl.DataFrame, *updates: Update) -> int | None:
    """Until the last of: ids no longer remembered, windows closed."""
    until = [update.open_until_ms for update in updates if update.open_until_ms is not None]
    newest = milliseconds(rows.filter(pl.col(FATE) != Fate.LATE)["event_time"]).max()
    if isinstance(newest, int):
        until.append(newest + MINUTE_MS + LATENESS_MS)
    return max(until, default=None)


class KeepEvents:
    """Every event with its fate, by log offset."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Judge:
        return Judge.start()

    def fold(self, state: Judge, batch: Batch) -> tuple[Judge, Outcome]:
        judge, rows = state.judge(batch)
        kept = rows.rename({OFFSET: "offset"}).select(*store.EVENTS.columns)
        return judge, Outcome(
            changes=[Upsert(store.EVENTS, kept)] if kept.height else [],
            counts=fates(rows),
            dead=_dead(rows),
            open_until_ms=_matters_until(rows),
            open_from_offset=judge.seen.open_from_offset,
        )

    def provisional(self, state: Judge) -> list[Changes]:
        return []


SYSTEM = System(
    name="ads",
    title="Ad click aggregation",
    projections=(
        Projection("ads-windows", EVENTS, CountByWindow(), store.WINDOWS, store="redis"),
        Projection(
            "ads-events",
            EVENTS,
            KeepEvents(),
            store.HISTORY,
            store="clickhouse",
            linger_ms=1_000,
            late_output=False,
        ),
    ),
)
