"""Samples of metrics: kept, and measured by series.

A series has one sample at a time: the first that came. Sums are exact, so that they do not depend
on the order of arrival: values are added as integers of 2**-40, and what is beyond ±2**66 counts
as that. Ends of series and their times are kept, and counted in no rollup.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from schemas.telemetry.events import SAMPLED, SAMPLES, SERIES_DECLARED
from sinks import telemetry as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Upsert
from streams.runtime.watermark import milliseconds
from streams.runtime.window import Aggregate, Count, Max, Min, PaneWindows, Spec, tumbling
from streams.telemetry.judge import FATE, HOUR, HOUR_MS, MINUTE_MS, TIME_MS, Judge

LATENESS_MS = SAMPLES.allowed_lateness_ms
SCALE = 2.0**40
LARGEST = 2.0**66
IDENTITY = "identity"


def start() -> Judge:
    """A judge of samples: one series and time, whatever the value, is one sample."""
    return Judge.start(IDENTITY, ("series_id",), LATENESS_MS)


def _samples(state: Judge, batch: Batch) -> tuple[Judge, pl.DataFrame]:
    rows = batch.of(SAMPLED.fullname)
    at = pl.format("{}/{}", "series_id", pl.col("event_time").dt.epoch("ms")).alias(IDENTITY)
    return state.judge(rows.with_columns(at), batch.watermark_ms)


def _declared(batch: Batch) -> pl.DataFrame:
    return batch.of(SERIES_DECLARED.fullname)


def _counts(counts: Mapping[str, int], declared: pl.DataFrame) -> dict[str, int]:
    """Declarations are applied, all of them: the newest says the same as the first."""
    applied = counts.get(Fate.APPLIED, 0) + declared.height
    return {**counts, Fate.APPLIED.value: applied}


class KeepSamples:
    """Every series, and every sample but repeats, however late."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Judge:
        return start()

    def fold(self, state: Judge, batch: Batch) -> tuple[Judge, Outcome]:
        judge, rows = _samples(state, batch)
        kept = rows.filter(pl.col(FATE) != Fate.DUPLICATE).with_columns(
            (pl.col(FATE) == Fate.LATE).alias("late"), HOUR
        )
        declared = _declared(batch).with_columns(
            milliseconds(_declared(batch)["event_time"]).alias("declared_ms")
        )
        latest = declared.unique("series_id", keep="last", maintain_order=True)
        changes = ((store.SERIES, latest), (store.SAMPLES, kept))
        fate = judge.fate(rows)
        fate["counts"] = _counts(fate["counts"], declared)
        expired_ms = (batch.watermark_ms - store.HOT_MS) // HOUR_MS * HOUR_MS
        return judge, Outcome(
            changes=[Upsert(t, found.select(*t.columns)) for t, found in changes if found.height],
            expire_before_ms={store.SAMPLES.name: expired_ms},
            **fate,
        )

    def provisional(self, state: Judge) -> list[Changes]:
        return []


def _last(column: str) -> Aggregate:
    """The value of the latest sample; no two samples of a series have one time."""
    return Aggregate(
        pl.col(column).sort_by(TIME_MS).last(), lambda name: pl.col(name).sort_by("last_ms").last()
    )


def windows(size_ms: int) -> PaneWindows:
    """What each series was."""
    exact = Aggregate(pl.col("exact").sum(), lambda name: pl.col(name).sum(), summed="exact")
    measures = {
        "count": Count(), "exact": exact, "min": Min("value"), "max": Max("value"),
        "last": _last("value"), "last_ms": Max(TIME_MS),
    }  # fmt: skip
    by = ("series_id",)
    return tumbling(Spec(by, "event_time", measures, allowed_lateness_ms=LATENESS_MS), size_ms)


@dataclass(frozen=True)
class Measuring:
    """State of `MeasureSeries`."""

    judge: Judge
    minutes: PaneWindows
    hours: PaneWindows


class MeasureSeries:
    """Samples in time → count, sum, min, max and last of each series, per minute and per hour."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Measuring:
        return Measuring(start(), windows(MINUTE_MS), windows(HOUR_MS))

    def fold(self, state: Measuring, batch: Batch) -> tuple[Measuring, Outcome]:
        judge, rows = _samples(state.judge, batch)
        measured = rows.filter((pl.col(FATE) == Fate.APPLIED) & pl.col("value").is_not_null())
        fixed = (pl.col("value").clip(-LARGEST, LARGEST) * SCALE).round().cast(pl.Int128)
        measured = measured.with_columns(fixed.alias("exact"))
        minutes, by_minute = state.minutes.add(measured, batch.watermark_ms)
        hours, by_hour = state.hours.add(measured, batch.watermark_ms)
        late = rows.filter(pl.col(FATE) == Fate.LATE)
        fate = judge.fate(rows)
        fate["counts"] = _counts(fate["counts"], _declared(batch))
        ends = (fate["open_until_ms"], by_minute.open_until_ms, by_hour.open_until_ms)
        fate["open_until_ms"] = max((end for end in ends if end is not None), default=None)
        outcome = Outcome(
            changes=_upserts(by_minute.changed, by_hour.changed),
            late={SAMPLES.name: late.select(OFFSET, WATERMARK)} if late.height else {},
            expire_before_ms=dict.fromkeys(
                ("minutes", "hours"), batch.watermark_ms - store.COLD_MS
            ),
            **fate,
        )
        return replace(state, judge=judge, minutes=minutes, hours=hours), outcome

    def provisional(self, state: Measuring) -> list[Changes]:
        return []


def _upserts(minutes: pl.DataFrame, hours: pl.DataFrame) -> list[Changes]:
    tables = ((store.METRIC_MINUTES, minutes), (store.METRIC_HOURS, hours))
    return [
        Upsert(
            table,
            rows.with_columns(
                (pl.col("exact").cast(pl.Float64) / SCALE).alias("sum"),
                pl.col("start_ms").alias("minute_ms"),
                pl.col("start_ms").floordiv(HOUR_MS).mul(HOUR_MS).alias("hour_ms"),
            ).select(*table.columns),
        )
        for table, rows in tables
        if rows.height
    ]
