"""The short URL itself. It needs no token, and answers without waiting for the log."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from api.auth import REDIRECT
from api.problem import Problem, busy, responses
from api.services import ServicesDep
from connectors.asking import NoVerdict
from connectors.links.redirects import Gone, Redirects, Visit
from schemas.links.codes import CODE
from streams.runtime.settings import Links as LinkSettings
from streams.runtime.settings import Settings
from streams.runtime.sink import SinkError


def client_address(request: Request, settings: LinkSettings) -> str:
    """Whose address the country is looked up by; empty where it is not known."""
    told = request.headers.get("x-forwarded-for", "") if settings.forwarded else ""
    if told:
        return told.rpartition(",")[2].strip()
    return request.client.host if request.client else ""


_SETTINGS: list[LinkSettings] = []


async def link_settings() -> LinkSettings:
    """Dependency: the settings of short links, read once."""
    if not _SETTINGS:
        _SETTINGS.append(Settings.read().links)
    return _SETTINGS[0]


router = APIRouter(tags=["links"], responses=responses(404, 410))


@router.head(REDIRECT, include_in_schema=False)
@router.get(
    REDIRECT,
    status_code=302,
    response_class=Response,
    responses={
        301: {"description": "Permanent: clients may go there without asking again."},
        302: {"description": "The link leads to `Location`."},
    },
)
async def follow(
    code: Annotated[str, Path(pattern=f"^{CODE}$")],
    request: Request,
    services: ServicesDep,
    settings: Annotated[LinkSettings, Depends(link_settings)],
) -> Response:
    """Follow a short link: 302, or 301 where its owner said so."""
    redirects: Redirects = services.opened("links-redirects")
    headers = request.headers
    visit = Visit(
        code=code,
        method=request.method,
        address=client_address(request, settings),
        referrer=headers.get("referer", ""),
        user_agent=headers.get("user-agent", ""),
    )
    try:
        leads = await redirects.visit(visit)
    except Gone:
        raise Problem(HTTPStatus.GONE, "gone", "this link leads nowhere any more") from None
    except (SinkError, NoVerdict) as error:
        raise busy("where this link leads cannot be looked up now") from error
    if leads is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-link", "there is no such link")
    remember = f"private, max-age={leads.remember_ms // 1_000}" if leads.permanent else "no-store"
    told = {"Location": leads.url, "Cache-Control": remember}
    return Response(status_code=301 if leads.permanent else 302, headers=told)
