"""Searches → counts by hour, and what is searched for just now.

A search is, in this order, **late** (its hour closed, with the allowed lateness, before it came),
a **duplicate** (same id, same content), **filtered** or **applied**. Filtered is what makes no
suggestion: it was not finished, it found nothing, it is no query (nothing to see, or a pasted
text), or its user has searched for the same in the same hour: one person is one voice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from schemas.typeahead.events import QUERIES
from schemas.typeahead.folding import QUERY_CHARS_MAX
from sinks import typeahead as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.sink import Changes, Rank, RankMerge, Upsert
from streams.runtime.watermark import milliseconds
from streams.runtime.window import Count, PaneWindows, Spec, tumbling

LATENESS_MS = QUERIES.allowed_lateness_ms
HORIZON_MS = store.HOUR_MS + LATENESS_MS
CONTENT = ("user_id", "query", "finished", "hits", "filters")
FATE, HOUR, TIME_MS, VOICE = "fate", "hour", "time_ms", "voice"


@dataclass(frozen=True)
class Judge:
    """The searches and the voices of the last hours; immutable."""

    queries: SeenIds
    voices: SeenIds

    @classmethod
    def start(cls) -> Judge:
        """A judge that has seen nothing."""
        return cls(
            queries=SeenIds("query_id", "event_time", CONTENT, HORIZON_MS),
            voices=SeenIds(VOICE, HOUR, (), HORIZON_MS),
        )

    def judge(self, batch: Batch) -> tuple[Judge, pl.DataFrame]:
        """The batch's searches in offset order with `text`, `time_ms` and `fate`."""
        rows = batch.frame.with_columns(
            milliseconds(batch.frame["event_time"]).alias(TIME_MS),
            pl.col("event_time").dt.truncate("1h").alias(HOUR),
            _text(pl.col("query")).alias("text"),
        )
        late = rows.select(milliseconds(rows[HOUR]) + HORIZON_MS <= pl.col(WATERMARK)).to_series()
        behind, rows = rows.filter(late), rows.filter(~late)
        queries, verdicts = self.queries.check(rows, batch.watermark_ms)
        words = pl.col("text").str.len_chars().is_between(1, QUERY_CHARS_MAX)
        rows = rows.with_columns(
            pl.when(verdicts == Verdict.DUPLICATE)
            .then(pl.lit(Fate.DUPLICATE.value))
            .when(~(pl.col("finished") & (pl.col("hits") > 0) & words))
            .then(pl.lit(Fate.FILTERED.value))
            .alias(FATE)
        )
        said = ("user_id", pl.col(HOUR).dt.epoch("ms"), pl.col("text").str.to_lowercase())
        heard = rows.filter(pl.col(FATE).is_null()).with_columns(
            pl.concat_str(*said, separator="\n").alias(VOICE)
        )
        voices, verdicts = self.voices.check(heard, batch.watermark_ms)
        heard = heard.with_columns(
            pl.when(verdicts == Verdict.NEW)
            .then(pl.lit(Fate.APPLIED.value))
            .otherwise(pl.lit(Fate.FILTERED.value))
            .alias(FATE)
        )
        judged = (
            rows.filter(pl.col(FATE).is_not_null()),
            heard.select(rows.columns),
            behind.with_columns(pl.lit(Fate.LATE.value).alias(FATE)),
        )
        return Judge(queries, voices), pl.concat(judged).sort(OFFSET)

    def fates(self, rows: pl.DataFrame) -> dict[str, Any]:
        """What an `Outcome` says of judged rows: their fates, and how long they matter."""
        late = rows.filter(pl.col(FATE) == Fate.LATE)
        newest = rows.filter(pl.col(FATE) != Fate.LATE)[TIME_MS].max()
        return {
            "counts": dict(rows.group_by(FATE).len().iter_rows()),
            "late": {QUERIES.name: late.select(OFFSET, WATERMARK)} if late.height else {},
            "open_until_ms": newest + HORIZON_MS if isinstance(newest, int) else None,
            "open_from_offset": self.queries.open_from_offset,
        }


def _text(query: pl.Expr) -> pl.Expr:
    """The query with its own letters and accents, composed, with single spaces between words."""
    return query.str.normalize("NFC").str.replace_all(r"\s+", " ").str.strip_chars()


@dataclass(frozen=True)
class Counting:
    """State of `CountByHour`."""

    judge: Judge
    hours: PaneWindows


class CountByHour:
    """Applied searches → absolute counts by hour and text, for as long as they can weigh."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Counting:
        spec = Spec(("text",), "event_time", {"searches": Count()}, allowed_lateness_ms=LATENESS_MS)
        return Counting(Judge.start(), tumbling(spec, store.HOUR_MS))

    def fold(self, state: Counting, batch: Batch) -> tuple[Counting, Outcome]:
        judge, rows = state.judge.judge(batch)
        hours, update = state.hours.add(
            rows.filter(pl.col(FATE) == Fate.APPLIED), batch.watermark_ms
        )
        counted = update.changed.rename({"start_ms": "hour_ms"}).select(*store.HOURS.columns)
        outcome = Outcome(
            changes=[Upsert(store.HOURS, counted)] if counted.height else [],
            expire_before_ms={store.HOURS.name: batch.watermark_ms - store.KEEP_MS},
            **judge.fates(rows),
        )
        return replace(state, judge=judge, hours=hours), outcome

    def provisional(self, state: Counting) -> list[Changes]:
        return []


class KeepRecent:
    """Applied searches → how many there are of a text in each minute, and what each user has
    searched for, newest in the order of the log.
    """

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Judge:
        return Judge.start()

    def fold(self, state: Judge, batch: Batch) -> tuple[Judge, Outcome]:
        judge, rows = state.judge(batch)
        applied = rows.filter(pl.col(FATE) == Fate.APPLIED).with_columns(
            _start(store.MINUTE_MS).alias("minute_ms"),
            _start(store.WEEK_MS).alias("week_ms"),
            pl.col(TIME_MS).alias("searched_ms"),
        )
        changes: list[Changes] = []
        if applied.height:
            minutes = applied.group_by("minute_ms", "text").agg(
                pl.len().cast(pl.Int64).alias("score"), pl.col(TIME_MS).max().alias("reached_ms")
            )
            own = applied.select(*store.OWN.columns)
            own = own.unique([*store.OWN.key], keep="last", maintain_order=True)
            changes = [
                Rank(store.MINUTES, RankMerge.SUM, minutes.select(*store.MINUTES.columns)),
                Upsert(store.OWN, own),
            ]
        outcome = Outcome(
            changes=changes,
            expire_before_ms={
                store.MINUTES.name: batch.watermark_ms - store.TRENDING_KEEP_MS,
                store.OWN.name: batch.watermark_ms - store.OWN_KEEP_MS,
            },
            **judge.fates(rows),
        )
        return judge, outcome

    def provisional(self, state: Judge) -> list[Changes]:
        return []


def _start(size_ms: int) -> pl.Expr:
    return pl.col(TIME_MS).floordiv(size_ms).mul(size_ms)
