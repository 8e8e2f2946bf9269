"""Short links and their clicks, for who made them."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, Field, model_validator

from api import ingest
from api.auth import READ, WRITE, requires
from api.commands import VERDICT, AskedDep, ask
from api.json_route import JsonRoute
from api.models import Input, QueryInstant
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, responses
from api.reads import fresh
from api.routes.links.redirect import link_settings
from api.services import ServicesDep
from connectors.links.target import CHARS_MAX, target
from schemas.links import events
from schemas.links.codes import CODE
from sinks import links as store
from streams.runtime.settings import Links as LinkSettings

DAY_MS = 24 * 3_600_000
SPAN_DAYS_MAX = 366


class NewUrl(Input):
    """A link to shorten."""

    longUrl: str = Field(max_length=CHARS_MAX, description="An absolute http or https URL.")  # noqa: N815
    alias: str | None = Field(
        default=None, pattern=f"^{CODE}$", description="The code that is wanted; 409 if taken."
    )
    ttl: Annotated[int, Field(ge=1, le=3_660 * 86_400)] | None = Field(
        default=None, description="Seconds that it leads anywhere; for ever if left out."
    )
    permanent: bool = Field(default=False, description="301 instead of 302.")
    clicksMax: Annotated[int, Field(ge=1, le=10**9)] | None = Field(  # noqa: N815
        default=None, description="How many clicks it has; the next is answered 410."
    )

    @model_validator(mode="after")
    def _counted(self) -> NewUrl:
        if self.permanent and self.clicksMax is not None:
            raise ValueError("clients remember a permanent redirect, so its clicks have no limit")
        return self


class Switched(Input):
    """Whether a link leads anywhere."""

    disabled: bool


class Url(BaseModel):
    """A link as it stands."""

    code: str
    shortUrl: str  # noqa: N815
    longUrl: str  # noqa: N815
    permanent: bool
    expiresAt: int | None = Field(description="Milliseconds since 1970.")  # noqa: N815
    clicksMax: int | None  # noqa: N815
    used: int = Field(description="Clicks taken of `clicksMax`.")
    disabled: bool
    createdAt: int = Field(description="Milliseconds since 1970.")  # noqa: N815


class LinkReads(AppliedSource, Protocol):
    """What is asked of links; `sinks.links.LinksReader` answers."""

    async def link(self, code: str) -> store.Link | None:
        """The link; None where there is none."""
        ...


class ClickReads(AppliedSource, Protocol):
    """What is asked of clicks; `sinks.links.ClicksReader` answers."""

    async def clicks(
        self, code: str, by: store.By, from_ms: int, to_ms: int
    ) -> Sequence[store.Count]:
        """Clicks that count, by value."""
        ...


SettingsDep = Annotated[LinkSettings, Depends(link_settings)]
Code = Annotated[str, Path(pattern=f"^{CODE}$", description="The code of the link.")]

writes = APIRouter(
    prefix="/v1/urls",
    tags=["links"],
    route_class=JsonRoute,
    dependencies=[requires(WRITE)],
    responses={**VERDICT, **responses(400, 403, 404, 409, 413, 415)},
)


@writes.post("", status_code=201, response_model=Url)
async def shorten(
    new: NewUrl, services: ServicesDep, asked: AskedDep, settings: SettingsDep
) -> Response:
    """Make a short link. With an `Idempotency-Key` a repeat gets the same one."""
    try:
        url = target(new.longUrl, urlsplit(settings.base_url).netloc)
    except ValueError as error:
        wrong = InputError(detail=str(error), parameter="longUrl")
        raise invalid(f"longUrl: {error}", wrong) from error
    row = events.CreateLink(
        code=new.alias if new.alias is not None else asked.new_id("link"),
        alias=new.alias is not None,
        url=url,
        owner=asked.subject,
        permanent=new.permanent,
        ttl_ms=None if new.ttl is None else new.ttl * 1_000,
        clicks_max=new.clicksMax,
    )
    answer = await ask(services, asked, events.COMMANDS, events.CREATE_LINK.name, row)
    return _with_short_url(answer, settings)


@writes.patch("/{code}", response_model=Url)
async def switch(
    code: Code, to: Switched, services: ServicesDep, asked: AskedDep, settings: SettingsDep
) -> Response:
    """Disable a link, or enable it again; only who made it may. Takes effect within a second."""
    row = events.SwitchLink(code, asked.subject, to.disabled)
    answer = await ask(services, asked, events.COMMANDS, events.SWITCH_LINK.name, row)
    return _with_short_url(answer, settings)


def _with_short_url(answer: Response, settings: LinkSettings) -> Response:
    """A verdict about a link, with where it can be followed."""
    told: dict[str, Any] = msgspec.json.decode(bytes(answer.body))
    if answer.status_code >= HTTPStatus.BAD_REQUEST or "longUrl" not in told:
        return answer
    told["shortUrl"] = short_url(told["code"], settings)
    kept = {k: v for k, v in answer.headers.items() if k not in {"content-length", "content-type"}}
    return Response(msgspec.json.encode(told), answer.status_code, kept, "application/json")


def short_url(code: str, settings: LinkSettings) -> str:
    """The URL to give to people."""
    return f"{settings.base_url.rstrip('/')}/{code}"


router = APIRouter(
    prefix="/v1/urls",
    tags=["links"],
    dependencies=[requires(READ)],
    responses={**responses(404, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/{code}")
async def url(
    code: Code,
    source: Annotated[LinkReads, Depends(fresh("links", events.EVENTS))],
    settings: SettingsDep,
) -> Url:
    """A link as it stands."""
    found = await source.link(code)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-link", "there is no such link")
    return Url(
        code=found.code,
        shortUrl=short_url(found.code, settings),
        longUrl=found.url,
        permanent=found.permanent,
        expiresAt=found.expires_ms,
        clicksMax=found.clicks_max,
        used=found.used,
        disabled=found.disabled,
        createdAt=found.created_ms,
    )


@router.get("/{code}/clicks", response_model=list[store.Count])
async def clicks(
    code: Code,
    source: Annotated[ClickReads, Depends(fresh("links-clicks", events.CLICKS))],
    since: Annotated[QueryInstant, Query(alias="from", description="Inclusive.")],
    until: Annotated[QueryInstant, Query(alias="to", description="Exclusive.")],
    by: store.By = "hour",
) -> Sequence[store.Count]:
    """Clicks of people, of at most a year: by hour or day (UTC), country, referrer or device."""
    if not 0 <= until - since <= SPAN_DAYS_MAX * DAY_MS:
        detail = f"to must be from 0 to {SPAN_DAYS_MAX} days after from"
        raise invalid(detail, InputError(detail=detail, parameter="to"))
    return await source.clicks(code, by, since, until)
