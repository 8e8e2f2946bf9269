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
from api.problem import InputError, invalid, responses
from api.reads import fresh
from schemas.ads import events

TOP_MAX = 1_000
RANGE_MS_MAX = timedelta(days=31) // timedelta(milliseconds=1)
Cost = Annotated[int, Field(ge=0, le=10**15)]


class Minute(BaseModel):
    """What one campaign had in one minute of event time."""

    start_ms: int = Field(description="Start of the minute, milliseconds since 1970.")
    impressions: int
    clicks: int
    cost_micros: int = Field(description="Cost in millionths of the currency's unit.")


class AdCount(BaseModel):
    """One ad's count, in a list that has the highest first."""

    campaign_id: str
    ad_id: str
    count: int


class Totals(BaseModel):
    """All campaigns, all time."""

    impressions: int
    clicks: int
    cost_micros: int


By = Literal["clicks", "impressions", "cost"]


class AdsReads(AppliedSource, Protocol):
    """What the read routes ask; `sinks/ads.py` answers."""

    async def minutes(self, campaign_id: str, from_ms: int, to_ms: int) -> Sequence[Minute]:
        """Minutes with `from_ms <= start < to_ms` that have anything, ascending."""
        ...

    async def top_ads(self, campaign_id: str | None, by: By, n: int) -> Sequence[AdCount]:
        """The `n` ads with the highest count, of one campaign or of all."""
        ...

    async def totals(self) -> Totals:
        """Totals over everything."""
        ...


ReadsDep = Annotated[AdsReads, Depends(fresh("ads", events.EVENTS))]
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


async def span_ms(
    since: Annotated[QueryInstant, Query(alias="from", description="First minute, inclusive.")],
    until: Annotated[QueryInstant, Query(alias="to", description="Last minute, exclusive.")],
) -> tuple[int, int]:
    """Dependency: the span of event time that is asked about."""
    if not 0 <= until - since <= RANGE_MS_MAX:
        detail = "to must be from 0 to 31 days after from"
        raise invalid(detail, InputError(detail=detail, parameter="to"))
    return since, until


@router.get("/campaigns/{campaign_id}/minutes")
async def campaign_minutes(
    campaign_id: Campaign, span: Annotated[tuple[int, int], Depends(span_ms)], source: ReadsDep
) -> list[Minute]:
    """A campaign's minutes; minutes without anything are left out."""
    return list(await source.minutes(campaign_id, *span))


@router.get("/campaigns/{campaign_id}/ads/top")
async def campaign_top(
    campaign_id: Campaign,
    source: ReadsDep,
    by: By = "clicks",
    n: Count = 10,
) -> list[AdCount]:
    """The best ads of a campaign."""
    return list(await source.top_ads(campaign_id, by, n))


@router.get("/ads/top")
async def top(source: ReadsDep, by: By = "clicks", n: Count = 10) -> list[AdCount]:
    """The best ads of all campaigns."""
    return list(await source.top_ads(None, by, n))


@router.get("/totals")
async def totals(source: ReadsDep) -> Totals:
    """All campaigns, all time."""
    return await source.totals()
