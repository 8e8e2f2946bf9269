"""Ads: what was shown and clicked, by campaign and minute.

Writes go to the log; reads answer from the read models, each with the position it is true for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, requires
from api.models import Country, Id, QueryInstant
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, responses
from api.reads import fresh
from schemas.ads import events
from sinks.ads import history, windows

TOP_MAX = 1_000
HOUR_MS = timedelta(hours=1) // timedelta(milliseconds=1)
DAY_MS = 24 * HOUR_MS
Cost = Annotated[int, Field(ge=0, le=10**12)]


class Totals(BaseModel):
    """What was counted."""

    impressions: int
    clicks: int
    cost_micros: int = Field(description="Cost in millionths of the currency's unit.")


class Minute(Totals):
    """What one campaign had in one minute of event time."""

    start_ms: int = Field(description="Start of the minute, milliseconds since 1970.")
    final: bool = Field(description="No event can change it any more; later ones are adjustments.")


class Adjustment(Totals):
    """What came too late to be counted in a minute."""

    start_ms: int = Field(description="Start of the minute, milliseconds since 1970.")


class AdTotals(Totals):
    """What one ad had, in a list that has the most first."""

    ad_id: str


class CampaignTotals(Totals):
    """What one campaign had, in a list that has the most first."""

    campaign_id: str


class Audit(BaseModel):
    """Two counts of the same events, at the same positions."""

    stream: Totals = Field(description="As the stream counted, event by event.")
    recount: Totals = Field(description="Counted again from all events that are kept.")
    difference: Totals = Field(description="Stream less recount: zeros.")


By = Literal["clicks", "impressions", "cost"]
_COLUMNS: Mapping[By, windows.By] = {
    "clicks": "clicks",
    "impressions": "impressions",
    "cost": "cost_micros",
}


class WindowReads(AppliedSource, Protocol):
    """What the read routes ask of the windows; `sinks.ads.windows.AdsReader` answers."""

    async def minutes(self, campaign_id: str, from_ms: int, to_ms: int) -> Sequence[windows.Minute]:
        """Minutes with `from_ms <= start < to_ms` that have anything, ascending."""
        ...

    async def top_ads(
        self, campaign_id: str, by: windows.By, n: int, from_ms: int, to_ms: int
    ) -> Sequence[windows.AdTotals]:
        """The `n` ads of a campaign with the most in these minutes."""
        ...

    async def top_campaigns(
        self, by: windows.By, n: int, from_ms: int, to_ms: int
    ) -> Sequence[windows.CampaignTotals]:
        """The `n` campaigns with the most in the hours that begin in the span."""
        ...


class HistoryReads(AppliedSource, Protocol):
    """What the read routes ask of the events; `sinks.ads.history.AdsHistory` answers."""

    async def adjustments(
        self, campaign_id: str, from_ms: int, to_ms: int
    ) -> Sequence[history.Adjustment]:
        """Minutes with `from_ms <= start < to_ms` that events came too late for, ascending."""
        ...


class AuditReads(AppliedSource, Protocol):
    """What the audit asks of both; `sinks.ads.history.AdsAudit` answers."""

    async def totals(self, from_ms: int, to_ms: int) -> history.Audit:
        """Both counts of all campaigns in the hours that begin in the span."""
        ...


WindowsDep = Annotated[WindowReads, Depends(fresh("ads", events.EVENTS))]
HistoryDep = Annotated[HistoryReads, Depends(fresh("ads-history", events.EVENTS))]
AuditDep = Annotated[AuditReads, Depends(fresh("ads-audit", events.EVENTS))]
Campaign = Annotated[Id, Path(description="The campaign.")]
Count = Annotated[int, Query(ge=1, le=TOP_MAX, description="How many.")]

_EXAMPLES: Mapping[str, Any] = {
    "AdClicked": {
        "type": "AdClicked",
        "click_id": "clk-01",
        "impression_id": "imp-01",
        "user_id": "u-7",
        "campaign_id": "spring-sale",
        "ad_id": "banner-3",
        "event_time": "2026-01-01T00:00:01.250Z",
        "country": "NL",
        "cost_micros": 420_000,
    },
    "AdImpressed": {
        "type": "AdImpressed",
        "impression_id": "imp-01",
        "user_id": "u-7",
        "campaign_id": "spring-sale",
        "ad_id": "banner-3",
        "event_time": 1_767_225_600_000,
        "country": "NL",
    },
}

writes = ingest.router(
    "ads",
    (
        ingest.Accepts(
            events.EVENTS, events.AD_IMPRESSED, "impression_id", narrower={"country": Country}
        ),
        ingest.Accepts(
            events.EVENTS,
            events.AD_CLICKED,
            "click_id",
            narrower={"country": Country, "cost_micros": Cost},
        ),
    ),
    _EXAMPLES,
)

router = APIRouter(
    prefix="/v1/ads",
    tags=["ads"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


Since = Annotated[QueryInstant, Query(alias="from", description="First minute, inclusive.")]
Until = Annotated[QueryInstant, Query(alias="to", description="Last minute, exclusive.")]


async def minutes_of_a_day(since: Since, until: Until) -> tuple[int, int]:
    """Dependency: the span of event time that is asked about, for answers by the minute."""
    return _span(since, until, DAY_MS, "one day")


async def hours_of_a_month(since: Since, until: Until) -> tuple[int, int]:
    """Dependency: the whole hours that are asked about, for answers that sum them up."""
    if since % HOUR_MS or until % HOUR_MS:
        raise _wrong("from and to must be whole hours (UTC)")
    return _span(since, until, 31 * DAY_MS, "31 days")


def _span(since: int, until: int, most_ms: int, most: str) -> tuple[int, int]:
    if not 0 <= until - since <= most_ms:
        raise _wrong(f"to must be from 0 to {most} after from")
    return since, until


def _wrong(detail: str) -> Problem:
    return invalid(detail, InputError(detail=detail, parameter="to"))


Minutes = Annotated[tuple[int, int], Depends(minutes_of_a_day)]
Hours = Annotated[tuple[int, int], Depends(hours_of_a_month)]


@router.get("/campaigns/{campaign_id}/minutes", response_model=list[Minute])
async def campaign_minutes(
    campaign_id: Campaign, span: Minutes, source: WindowsDep
) -> Sequence[windows.Minute]:
    """A campaign's minutes, of at most a day; minutes without anything are left out."""
    return await source.minutes(campaign_id, *span)


@router.get("/campaigns/{campaign_id}/ads/top", response_model=list[AdTotals])
async def top_ads(
    campaign_id: Campaign, span: Minutes, source: WindowsDep, by: By = "clicks", n: Count = 10
) -> Sequence[windows.AdTotals]:
    """The best ads of a campaign in a span of at most a day."""
    return await source.top_ads(campaign_id, _COLUMNS[by], n, *span)


@router.get("/campaigns/top", response_model=list[CampaignTotals])
async def top_campaigns(
    span: Hours, source: WindowsDep, by: By = "clicks", n: Count = 10
) -> Sequence[windows.CampaignTotals]:
    """The best campaigns in whole hours, at most a month of them."""
    return await source.top_campaigns(_COLUMNS[by], n, *span)


@router.get("/campaigns/{campaign_id}/adjustments", response_model=list[Adjustment])
async def adjustments(
    campaign_id: Campaign, span: Minutes, source: HistoryDep
) -> Sequence[history.Adjustment]:
    """What came after its minute was final, by minute, of at most a day: to be settled apart."""
    return await source.adjustments(campaign_id, *span)


@router.get("/totals", response_model=Audit)
async def totals(span: Hours, source: AuditDep) -> history.Audit:
    """All campaigns in whole hours, at most a month of them: as the stream counted, and counted
    again from the events that are kept. The difference is the proof.
    """
    return await source.totals(*span)
