"""Log lines: kept, and counted by service and level."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from schemas.telemetry.events import LOGS
from sinks import telemetry as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Upsert
from streams.runtime.window import PaneWindows, Spec, Sum, tumbling
from streams.telemetry.judge import FATE, HOUR, HOUR_MS, MINUTE_MS, Judge

LATENESS_MS = LOGS.allowed_lateness_ms
CONTENT = ("stream", "level", "nanos", "body", "trace_id", "span_id", "labels", "weight")
BY = ("service", "level")


def start() -> Judge:
    """A judge of lines: the same id with the same content is the same line."""
    return Judge.start("line_id", CONTENT, LATENESS_MS)


class KeepLines:
    """Every line but repeats, however late, for `keep_ms` of event time.

    The same id with other content is another line, kept under an id with the offset behind it.
    """

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Judge:
        return start()

    def fold(self, state: Judge, batch: Batch) -> tuple[Judge, Outcome]:
        judge, rows = state.judge(batch.frame, batch.watermark_ms)
        kept = rows.filter(pl.col(FATE) != Fate.DUPLICATE).with_columns(
            pl.when("conflict")
            .then(pl.format("{}~{}", "line_id", OFFSET))
            .otherwise("line_id")
            .alias("line_id"),
            (pl.col(FATE) == Fate.LATE).alias("late"),
            pl.col(OFFSET).alias("offset"),
            HOUR,
        )
        kept = kept.select(*store.LINES.columns)
        expired_ms = batch.watermark_ms - self._keep_ms
        return judge, Outcome(
            changes=[Upsert(store.LINES, kept)] if kept.height else [],
            expire_before_ms={store.LINES.name: expired_ms // HOUR_MS * HOUR_MS},
            **judge.fate(rows),
        )

    def provisional(self, state: Judge) -> list[Changes]:
        return []


def windows(size_ms: int) -> PaneWindows:
    """Lines by service and level. The judge has said what is late for a minute, and an hour closes
    no earlier than its last minute.
    """
    sums = {"lines": Sum("lines"), "weight": Sum("weight")}
    return tumbling(Spec(BY, "event_time", sums, allowed_lateness_ms=LATENESS_MS), size_ms)


@dataclass(frozen=True)
class Counting:
    """State of `CountLines`."""

    judge: Judge
    minutes: PaneWindows
    hours: PaneWindows


class CountLines:
    """Lines in time → absolute counts per minute and per hour."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Counting:
        return Counting(start(), windows(MINUTE_MS), windows(HOUR_MS))

    def fold(self, state: Counting, batch: Batch) -> tuple[Counting, Outcome]:
        judge, rows = state.judge.judge(batch.frame, batch.watermark_ms)
        counted = rows.filter(pl.col(FATE) == Fate.APPLIED).with_columns(
            pl.lit(1, pl.Int64).alias("lines")
        )
        minutes, by_minute = state.minutes.add(counted, batch.watermark_ms)
        hours, by_hour = state.hours.add(counted, batch.watermark_ms)
        late = rows.filter(pl.col(FATE) == Fate.LATE)
        fate = judge.fate(rows)
        ends = (fate["open_until_ms"], by_minute.open_until_ms, by_hour.open_until_ms)
        fate["open_until_ms"] = max((end for end in ends if end is not None), default=None)
        outcome = Outcome(
            changes=_upserts(by_minute.changed, by_hour.changed),
            late={LOGS.name: late.select(OFFSET, WATERMARK)} if late.height else {},
            expire_before_ms=dict.fromkeys(
                ("minutes", "hours"), batch.watermark_ms - store.COLD_MS
            ),
            **fate,
        )
        return replace(state, judge=judge, minutes=minutes, hours=hours), outcome

    def provisional(self, state: Counting) -> list[Changes]:
        return []


def _upserts(minutes: pl.DataFrame, hours: pl.DataFrame) -> list[Changes]:
    hour = pl.col("start_ms").floordiv(HOUR_MS).mul(HOUR_MS).alias("hour_ms")
    by_minute = minutes.rename({"start_ms": "minute_ms"}).with_columns(
        pl.col("minute_ms").floordiv(HOUR_MS).mul(HOUR_MS).alias("hour_ms")
    )
    tables = ((store.MINUTES, by_minute), (store.HOURS, hours.with_columns(hour)))
    return [Upsert(table, rows.select(*table.columns)) for table, rows in tables if rows.height]
