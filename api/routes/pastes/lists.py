"""Lists of pastes: the public ones of a day, and one's own."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, Principal, requires
from api.positions import AppliedSource
from api.problem import InputError, invalid, responses
from api.reads import fresh
from schemas.pastes.contents import ID
from schemas.pastes.events import EVENTS
from sinks.pastes.reader import PAGE_MAX, At, Listed, Page

_CURSOR = rf"^\d{{1,15}}\.{ID}$"


class ListPage(BaseModel):
    """A part of a list, the newest first."""

    pastes: list[Listed]
    next: str | None = Field(description="Send it as `cursor` for the next page; null at the end.")


class Lists(AppliedSource, Protocol):
    """What is asked; `sinks.pastes.reader.PastesReader` answers."""

    async def owned(self, owner: str, limit: int, after: At | None = None) -> Page: ...
    async def listed(self, day_ms: int, limit: int, after: At | None = None) -> Page: ...


async def place(
    cursor: Annotated[str | None, Query(pattern=_CURSOR, description="Of the page before.")] = None,
) -> At | None:
    """Dependency: where the page begins."""
    if cursor is None:
        return None
    at, _, name = cursor.partition(".")
    return int(at), name


SourceDep = Annotated[Lists, Depends(fresh("pastes", EVENTS))]
AtDep = Annotated[At | None, Depends(place)]
Limit = Annotated[int, Query(ge=1, le=PAGE_MAX)]

router = APIRouter(
    prefix="/v1/pastes",
    tags=["pastes"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("")
async def listed(
    source: SourceDep,
    at: AtDep,
    day: Annotated[
        str | None, Query(pattern=r"^\d{4}-\d\d-\d\d$", description="UTC; today by default.")
    ] = None,
    limit: Limit = 50,
) -> ListPage:
    """The public pastes of a day that can still be read."""
    return _page(await source.listed(_day_ms(day), limit, at))


@router.get("/mine")
async def mine(
    source: SourceDep,
    at: AtDep,
    principal: Annotated[Principal, requires(READ)],
    limit: Limit = 50,
) -> ListPage:
    """One's own pastes that can still be read."""
    return _page(await source.owned(principal.subject, limit, at))


def _day_ms(day: str | None) -> int:
    try:
        moment = datetime.now(UTC).date() if day is None else date.fromisoformat(day)
    except ValueError:
        detail = "not a day of the calendar"
        raise invalid(detail, InputError(detail=detail, parameter="day")) from None
    start = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return int(start.timestamp()) * 1_000


def _page(page: Page) -> ListPage:
    following = None if page.next is None else f"{page.next[0]}.{page.next[1]}"
    return ListPage(pastes=list(page.pastes), next=following)
