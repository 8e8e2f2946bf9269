"""The rule that the lane benchmark folds: clicks and cost by campaign in windows of ten seconds."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from streams.runtime.batch import Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.sink import Changes, ReadModel, Table, Upsert
from streams.runtime.topic import Topic
from streams.runtime.window import Count, PaneWindows, Spec, Sum, tumbling
from tests.bench.clicks import AD_CLICK, WINDOW_MS

WINDOWS = Table(
    name="windows",
    key={"start_ms": pl.Int64, "campaign_id": pl.Int64},
    values={"clicks": pl.Int64, "cost_micros": pl.Int64},
    bucket=("start_ms",),
    time="start_ms",
)


class CountByCampaign:
    """Clicks → absolute totals by campaign and window; no repeats are looked for."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> PaneWindows:
        aggregates = {"clicks": Count(), "cost_micros": Sum("cost_micros")}
        return tumbling(Spec(("campaign_id",), "event_time", aggregates), WINDOW_MS)

    def fold(self, state: PaneWindows, batch: Batch) -> tuple[PaneWindows, Outcome]:
        windows, update = state.add(batch.frame, batch.watermark_ms)
        late = update.late.height
        outcome = Outcome(
            changes=[Upsert(WINDOWS, update.changed.select(*WINDOWS.columns))],
            counts={Fate.APPLIED: batch.height - late, Fate.LATE: late},
            late={AD_CLICK.fullname: update.late} if late else {},
            open_until_ms=update.open_until_ms,
            open_from_offset=update.open_from_offset,
        )
        return windows, outcome

    def provisional(self, state: PaneWindows) -> list[Changes]:
        return []


def projection(topic: Topic, store: str) -> Projection:
    """The rule over a topic, stored in `store`."""
    name = f"bench-lane-{store}"
    return Projection(
        name=name,
        topic=topic,
        fold=CountByCampaign(),
        model=ReadModel(name, (WINDOWS,)),
        store=store,
        columns={AD_CLICK.fullname: ("campaign_id", "event_time", "cost_micros")},
    )
