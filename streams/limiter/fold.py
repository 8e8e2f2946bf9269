"""Decisions → what every rule said, by minute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import polars as pl

from schemas.limiter.events import DECISIONS
from sinks import limiter as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.sink import Changes, Upsert
from streams.runtime.watermark import milliseconds
from streams.runtime.window import PaneWindows, Spec, Sum, tumbling

MINUTE_MS = store.MINUTE_MS
LATENESS_MS = DECISIONS.allowed_lateness_ms
KEEP_MS = 31 * 24 * store.HOUR_MS
FATE = "fate"
CONTENT = ("principal", "client", "method", "route", "cost", "admitted")


@dataclass(frozen=True)
class Counting:
    """State of `CountDecisions`: requests seen, and the open minutes."""

    seen: SeenIds
    minutes: PaneWindows


class CountDecisions:
    """Each request once, each of its verdicts in the minute it was given.

    The same id with other content is another request; beyond the allowed lateness it is late.
    """

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Counting:
        sums = {name: Sum(name) for name in store.COUNTS}
        by = ("rule_id", "shadow")
        spec = Spec(by, "event_time", sums, allowed_lateness_ms=LATENESS_MS)
        seen = SeenIds("request_id", "event_time", CONTENT, MINUTE_MS + LATENESS_MS)
        return Counting(seen, tumbling(spec, MINUTE_MS))

    def fold(self, state: Counting, batch: Batch) -> tuple[Counting, Outcome]:
        seen, rows = _judged(state.seen, batch)
        applied = rows.filter(pl.col(FATE) == Fate.APPLIED)
        minutes, update = state.minutes.add(verdicts(applied), batch.watermark_ms)
        late = rows.filter(pl.col(FATE) == Fate.LATE)
        newest = milliseconds(rows.filter(pl.col(FATE) != Fate.LATE)["event_time"]).max()
        until = newest + MINUTE_MS + LATENESS_MS if isinstance(newest, int) else None
        outcome = Outcome(
            changes=_upserts(update.changed),
            counts=dict(rows.group_by(FATE).len().iter_rows()),
            late={DECISIONS.name: late.select(OFFSET, WATERMARK)} if late.height else {},
            expire_before_ms={store.MINUTES.name: batch.watermark_ms - KEEP_MS},
            open_until_ms=until,
            open_from_offset=seen.open_from_offset,
        )
        return replace(state, seen=seen, minutes=minutes), outcome

    def provisional(self, state: Counting) -> list[Changes]:
        return []


def verdicts(rows: pl.DataFrame) -> pl.DataFrame:
    """One row a verdict: what the rule said, and the units it charged."""
    told = rows.select("verdicts", "event_time", WATERMARK, OFFSET).explode("verdicts")
    told = told.filter(pl.col("verdicts").is_not_null()).unnest("verdicts")
    return told.select(
        "rule_id",
        "shadow",
        pl.col("admitted").cast(pl.Int64),
        (~pl.col("admitted")).cast(pl.Int64).alias("refused"),
        (pl.col("units") * pl.col("charged").cast(pl.Int64)).alias("units"),
        "event_time",
        WATERMARK,
        OFFSET,
    )


def _judged(seen: SeenIds, batch: Batch) -> tuple[SeenIds, pl.DataFrame]:
    """All rows with their fates."""
    rows = batch.frame
    start = milliseconds(rows["event_time"]) // MINUTE_MS * MINUTE_MS
    late = start + MINUTE_MS + LATENESS_MS <= rows[WATERMARK]
    seen, verdict = seen.check(rows.filter(~late), batch.watermark_ms)
    timely = rows.filter(~late).with_columns(
        pl.when(verdict == Verdict.DUPLICATE)
        .then(pl.lit(Fate.DUPLICATE.value))
        .otherwise(pl.lit(Fate.APPLIED.value))
        .alias(FATE)
    )
    behind = rows.filter(late).with_columns(pl.lit(Fate.LATE.value).alias(FATE))
    return seen, pl.concat([timely, behind]).sort(OFFSET)


def _upserts(minutes: pl.DataFrame) -> list[Changes]:
    rows = minutes.rename({"start_ms": "minute_ms"}).with_columns(
        (pl.col("minute_ms") // store.HOUR_MS * store.HOUR_MS).alias("hour_ms")
    )
    return [Upsert(store.MINUTES, rows.select(*store.MINUTES.columns))] if rows.height else []
