"""The query as a projection: views, joined to their campaign, counted in windows of ten seconds.

The side table is two arrays in memory: ad → number (a dictionary that Polars looks up in), number
→ campaign. `updated_ms` is the benchmark's `time_updated`, the clock at the write: a fold has no
clock, so it leaves 0 and `headrace.Stamped`, between lane and store, sets it.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streams.runtime.batch import Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.sink import Changes, ReadModel, Table, Upsert
from streams.runtime.topic import Topic
from streams.runtime.window import Count, PaneWindows, Spec, tumbling
from tests.bench.ysb.events import (
    AD_EVENT,
    AD_IDS,
    CAMPAIGN_IDS,
    CAMPAIGN_OF,
    VIEW,
    WINDOW_MS,
)

WINDOWS = Table(
    name="windows",
    key={"start_ms": pl.Int64, "campaign": pl.String},
    values={"seen": pl.Int64, "updated_ms": pl.Int64},
    bucket=("start_ms",),
    time="start_ms",
)
_ADS = pl.Enum(AD_IDS)
_CAMPAIGN_OF = pl.Series("campaign", CAMPAIGN_OF)
_CAMPAIGNS = pl.Series("campaign", CAMPAIGN_IDS)


class CountViews:
    """Events → absolute counts by campaign and window; of unknown ads nothing is counted."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> PaneWindows:
        return tumbling(Spec(("campaign",), "event_time", {"seen": Count()}), WINDOW_MS)

    def fold(self, state: PaneWindows, batch: Batch) -> tuple[PaneWindows, Outcome]:
        views = batch.frame.filter(pl.col("event_type") == VIEW)
        ads = views["ad_id"].cast(_ADS, strict=False)
        known = ads.is_not_null()
        if not known.all():
            views, ads = views.filter(known), ads.filter(known)
        campaign = _CAMPAIGN_OF.gather(ads.to_physical())
        windows, update = state.add(views.with_columns(campaign), batch.watermark_ms)
        changed = update.changed
        rows = changed.select(
            "start_ms",
            _CAMPAIGNS.gather(changed["campaign"]),
            "seen",
            pl.lit(0, pl.Int64).alias("updated_ms"),
        )
        late = update.late.height
        counts: dict[str, int] = {
            Fate.APPLIED: views.height - late,
            Fate.LATE: late,
            Fate.FILTERED: batch.height - views.height,
        }
        outcome = Outcome(
            changes=[Upsert(WINDOWS, rows)],
            counts=counts,
            late={AD_EVENT.fullname: update.late} if late else {},
            open_until_ms=update.open_until_ms,
            open_from_offset=update.open_from_offset,
        )
        return windows, outcome

    def provisional(self, state: PaneWindows) -> list[Changes]:
        return []


def projection(topic: Topic, linger_ms: int = 0) -> Projection:
    """The query over a topic, stored in Valkey."""
    name = f"bench-ysb-{topic.encoding}"
    return Projection(
        name=name,
        topic=topic,
        fold=CountViews(),
        model=ReadModel(name, (WINDOWS,)),
        store="redis",
        columns={AD_EVENT.fullname: ("ad_id", "event_type", "event_time")},
        linger_ms=linger_ms,
    )
