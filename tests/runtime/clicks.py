"""A small system for tests: clicks deduplicated by id, counted in windows by campaign."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import polars as pl

from streams.runtime.batch import WATERMARK
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.sink import Delete, ReadModel, Table, Upsert
from streams.runtime.topic import RecordType, Topic
from streams.runtime.window import END, START, Count, Spec, Sum, Windows


@dataclass(frozen=True)
class Clicked:
    click_id: str
    campaign: str
    at: int
    cost: int


FULLNAME = "test.Clicked"
CLICKED = RecordType(
    FULLNAME,
    json.dumps(
        {
            "type": "record",
            "name": FULLNAME,
            "fields": [
                {"name": "click_id", "type": "string"},
                {"name": "campaign", "type": "string"},
                {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
                {"name": "cost", "type": "long"},
            ],
        }
    ),
    {
        "click_id": pl.String,
        "campaign": pl.String,
        "at": pl.Datetime("ms", "UTC"),
        "cost": pl.Int64,
    },
    Clicked,
)


def topic(bound: int = 1, skew: int = 10**9) -> Topic:
    return Topic(
        "test.clicks", (CLICKED,), "campaign", "at", 1, "tests", "Clicks.",
        out_of_orderness_ms=bound, future_skew_ms=skew,
    )  # fmt: skip


TABLE = Table(
    "windows",
    {"campaign": pl.String, START: pl.Int64},
    {END: pl.Int64, "clicks": pl.Int64, "cost": pl.Int64},
)


def spec(**more) -> Spec:
    return Spec(("campaign",), "at", {"clicks": Count(), "cost": Sum("cost")}, **more)


@dataclass(frozen=True)
class Counted:
    windows: Windows
    seen: SeenIds | None = None
    conflicts: int = 0


@dataclass(frozen=True)
class ClickFold:
    """`horizon_ms` None: no deduplication."""

    windows: Windows
    horizon_ms: int | None = None

    def start(self, stored):
        return Counted(
            self.windows,
            self.horizon_ms and SeenIds("click_id", "at", ("cost",), self.horizon_ms),
        )

    def fold(self, state, batch):
        rows, seen, until = batch.frame, state.seen, None
        repeats = conflicts = 0
        if seen is not None and rows.height:
            beyond = rows["at"].dt.epoch("ms") + self.horizon_ms <= rows[WATERMARK]
            beyond_horizon, rows = rows.filter(beyond), rows.filter(~beyond)
            seen, verdicts = seen.check(rows, batch.watermark_ms)
            if rows.height:
                until = rows["at"].dt.epoch("ms").max() + self.horizon_ms
            repeats = (verdicts == Verdict.DUPLICATE).sum()
            conflicts = (verdicts == Verdict.CONFLICT).sum()
            rows = rows.filter(verdicts != Verdict.DUPLICATE)
        else:
            beyond_horizon = rows.clear()
        windows, update = state.windows.add(rows, batch.watermark_ms)
        late = pl.concat([update.late, beyond_horizon])
        untils = [u for u in (until, update.open_until_ms) if u is not None]
        froms = [update.open_from_offset, seen and seen.open_from_offset]
        outcome = Outcome(
            changes=(Delete(TABLE, update.deleted), Upsert(TABLE, update.changed)),
            counts={
                Fate.APPLIED: rows.height - update.late.height,
                Fate.LATE: late.height,
                Fate.DUPLICATE: repeats,
            },
            late={FULLNAME: late} if late.height else {},
            open_until_ms=max(untils, default=None),
            open_from_offset=min((f for f in froms if f is not None), default=None),
        )
        state = replace(state, windows=windows, seen=seen, conflicts=state.conflicts + conflicts)
        return state, outcome

    def provisional(self, state):
        rows = state.windows.provisional()
        return [] if rows is None or not rows.height else [Upsert(TABLE, rows)]


def projection(windows: Windows, *, horizon_ms=None, bound=1, skew=10**9) -> Projection:
    return Projection(
        "test-clicks",
        topic(bound, skew),
        ClickFold(windows, horizon_ms),
        ReadModel("test-clicks", (TABLE,)),
        "memory",
    )


def clicks(*times: int, campaign: str = "c", first: int = 0) -> list[Clicked]:
    return [Clicked(f"id{first + n}", campaign, t, 1) for n, t in enumerate(times)]
