"""Leaderboards: scores fold into boards per day, per week and for all time.

A score names its board and its operator: SUM adds up, BEST keeps the highest, LAST the latest. A
board with another operator is another board. A score lands in the day and week of its own event
time, however late it comes (up to the allowed lateness; beyond that it goes to the late output).
Repeats are ignored, of scores and of bans; a ban takes a player off every board and drops what
they score until they are reinstated, when they begin at nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from schemas.leaderboard.events import (
    PLAYER_BANNED,
    PLAYER_REINSTATED,
    SCORE_SUBMITTED,
    SCORES,
)
from sinks import leaderboard as store
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection, System
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.sink import Changes, Rank, Ranking, RankMerge, Unrank, Upsert
from streams.runtime.watermark import milliseconds

DAY_MS = 24 * 3_600_000
LATENESS_MS = SCORES.allowed_lateness_ms
RETENTION_MS = 400 * DAY_MS
POINTS_MAX = 10**12
"""Larger scores are set aside, so that no sum reaches 2**53, what a board holds exactly, in less
than nine thousand of them.
"""
BATCH_ROWS_MAX = 8_192
"""A score ranks on three boards, and the store answers nobody while it merges a batch: about 0.1 s
for so many."""
FATE = "fate"
CONTENT = ("board", "operator", "player_id", "points")

DECISION = ("player_id", "banned", "decision_id")
"""What makes two bans, or two reinstatements, the same one."""


@dataclass(frozen=True)
class Boards:
    """What a partition must remember: ids seen, and every ban and reinstatement (columns
    `DECISION`) by the offset it takes effect at.
    """

    seen: SeenIds
    decisions: pl.DataFrame


class Standings:
    """Scores and bans → rankings."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Boards:
        decisions = stored["bans"].rename({"offset": OFFSET}).select(*DECISION, OFFSET)
        seen = SeenIds("score_id", "time_ms", CONTENT, LATENESS_MS)
        return Boards(seen, decisions.sort(OFFSET))

    def fold(self, state: Boards, batch: Batch) -> tuple[Boards, Outcome]:
        told = _decisions(batch)
        new = told.unique(DECISION, keep="first").join(state.decisions, on=DECISION, how="anti")
        new = new.sort(OFFSET)
        decisions = pl.concat([state.decisions, new]) if new.height else state.decisions
        seen, scores = _judge(state.seen, decisions, batch)
        counts = dict(scores.group_by(FATE).len().iter_rows())
        for fate, rows in ((Fate.APPLIED, new.height), (Fate.DUPLICATE, told.height - new.height)):
            counts[fate] = counts.get(fate, 0) + rows
        late = scores.filter(pl.col(FATE) == Fate.LATE)
        dead = scores.filter(pl.col(FATE) == Fate.QUARANTINED)
        outcome = Outcome(
            changes=_changes(new, scores.filter(pl.col(FATE) == Fate.APPLIED)),
            counts=counts,
            late={SCORE_SUBMITTED.fullname: late.select(OFFSET, WATERMARK)} if late.height else {},
            dead=dict(zip(dead[OFFSET].to_list(), dead["reason"].to_list(), strict=True)),
            expire_before_ms={"periods": batch.watermark_ms - RETENTION_MS},
            open_until_ms=_matters_until(scores),
            open_from_offset=seen.open_from_offset,
        )
        return Boards(seen, decisions), outcome

    def provisional(self, state: Boards) -> list[Changes]:
        return []


def _decisions(batch: Batch) -> pl.DataFrame:
    """Bans and reinstatements of a batch, in offset order."""
    parts = [
        batch.of(record.fullname).select(
            "player_id", pl.lit(banned).alias("banned"), pl.col(id_).alias("decision_id"), OFFSET
        )
        for record, banned, id_ in (
            (PLAYER_BANNED, True, "ban_id"),
            (PLAYER_REINSTATED, False, "reinstatement_id"),
        )
    ]
    return pl.concat(parts).sort(OFFSET)


def _judge(seen: SeenIds, decisions: pl.DataFrame, batch: Batch) -> tuple[SeenIds, pl.DataFrame]:
    """The batch's scores with `fate` and, for those to quarantine, `reason`."""
    scores = batch.of(SCORE_SUBMITTED.fullname)
    time = milliseconds(scores["event_time"])
    scores = scores.with_columns(time.alias("time_ms"), pl.lit(None, pl.String).alias("reason"))
    late = pl.col("time_ms") + LATENESS_MS <= pl.col(WATERMARK)
    scores = scores.with_columns(pl.when(late).then(pl.lit(Fate.LATE.value)).alias(FATE))
    timely = scores.filter(pl.col(FATE).is_null())
    seen, verdict = seen.check(timely, batch.watermark_ms)
    too_large = ~pl.col("points").is_between(-POINTS_MAX, POINTS_MAX)
    judged = _banned(timely.with_columns(verdict), decisions).with_columns(
        pl.when(pl.col("verdict") == Verdict.DUPLICATE)
        .then(pl.lit(Fate.DUPLICATE.value))
        .when((pl.col("verdict") == Verdict.CONFLICT) | too_large)
        .then(pl.lit(Fate.QUARANTINED.value))
        .when(pl.col("banned"))
        .then(pl.lit(Fate.FILTERED.value))
        .otherwise(pl.lit(Fate.APPLIED.value))
        .alias(FATE),
        pl.when(too_large)
        .then(pl.lit(f"field points: beyond ±{POINTS_MAX}"))
        .otherwise(pl.lit("field score_id: used before, with other content"))
        .alias("reason"),
    )
    parts = [scores.filter(pl.col(FATE).is_not_null()), judged.select(scores.columns)]
    return seen, pl.concat(parts).sort(OFFSET)


def _banned(scores: pl.DataFrame, decisions: pl.DataFrame) -> pl.DataFrame:
    """Adds `banned`: whether the player's latest decision before the row was a ban."""
    latest = scores.join_asof(
        decisions.drop("decision_id"),
        on=OFFSET,
        by="player_id",
        strategy="backward",
        check_sortedness=False,
    )
    return latest.with_columns(pl.col("banned").fill_null(value=False))


def _changes(decisions: pl.DataFrame, applied: pl.DataFrame) -> list[Changes]:
    """Take the newly banned off all boards, then merge the scores that stay."""
    changes: list[Changes] = []
    if decisions.height:
        changes.append(
            Upsert(store.BANS, decisions.rename({OFFSET: "offset"}).select(*store.BANS.columns))
        )
        fallen = (
            decisions.filter("banned").group_by("player_id").agg(pl.col(OFFSET).max().alias("at"))
        )
        members = fallen["player_id"].sort().to_list()
        if members:
            changes += [Unrank(store.ALL_TIME, members), Unrank(store.PERIODS, members)]
            # What they scored before the ban, in this batch, would be taken off again.
            applied = applied.join(fallen, on="player_id", how="left").filter(
                pl.col("at").is_null() | (pl.col(OFFSET) > pl.col("at"))
            )
    for operator, merge in _MERGES.items():
        scores = applied.filter(pl.col("operator") == operator)
        if scores.height:
            changes += [
                Rank(store.ALL_TIME, merge, _merged(scores, store.ALL_TIME, merge)),
                Rank(store.PERIODS, merge, _merged(_periods(scores), store.PERIODS, merge)),
            ]
    return changes


_MERGES = {"SUM": RankMerge.SUM, "BEST": RankMerge.BEST, "LAST": RankMerge.LAST}


def _periods(scores: pl.DataFrame) -> pl.DataFrame:
    """Each score twice: in its day and in its week."""
    return pl.concat(
        [
            scores.with_columns(
                pl.lit(period).alias("period"),
                pl.col("event_time").dt.truncate(every).dt.epoch("ms").alias("start_ms"),
            )
            for period, every in (("day", "1d"), ("week", "1w"))
        ]
    )


def _merged(scores: pl.DataFrame, ranking: Ranking, merge: RankMerge) -> pl.DataFrame:
    """One row per board and member, merged as the store merges."""
    groups = scores.group_by(*ranking.board, ranking.member)
    time, points = pl.col("time_ms"), pl.col("points")
    if merge is RankMerge.SUM:
        merged = groups.agg(points.sum().alias("score"), time.max().alias("reached_ms"))
    elif merge is RankMerge.BEST:
        best = points == points.max()
        merged = groups.agg(
            points.max().alias("score"), time.filter(best).min().alias("reached_ms")
        )
    else:
        newest = time == time.max()
        merged = groups.agg(
            points.filter(newest).max().alias("score"), time.max().alias("reached_ms")
        )
    return merged.select(*ranking.columns)


def _matters_until(scores: pl.DataFrame) -> int | None:
    newest = scores.filter(pl.col(FATE) != Fate.LATE)["time_ms"].max()
    return newest + LATENESS_MS if isinstance(newest, int) else None


SYSTEM = System(
    name="leaderboard",
    title="Leaderboards",
    projections=(
        Projection(
            "leaderboard",
            SCORES,
            Standings(),
            store.BOARDS,
            store="redis",
            restores=("bans",),
            rows_max=BATCH_ROWS_MAX,
        ),
    ),
)
