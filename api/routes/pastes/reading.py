"""Pastes read, by anybody: a token is needed only for what is private.

The password travels in the header `Paste-Password`, never in an address that logs and histories
keep. HEAD is not answered: it would have to burn, or to lie.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Final, Literal

import msgspec
from fastapi import APIRouter, Depends, Header, Request, Response
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, Principal, require
from api.positions import APPLIED
from api.problem import Problem, busy, responses
from api.reads import fresh
from api.routes.pastes.writing import PasteId
from api.services import ServicesDep
from connectors.asking import NoVerdict
from connectors.pastes.highlighting import Highlighter
from connectors.pastes.passwords import CHARS_MAX
from connectors.pastes.reading import Absent, Gone, NotYet, Read, Reading, WrongPassword
from schemas.pastes.events import EVENTS
from sinks.pastes.reader import Paste
from streams.runtime.kafka import partition_of

REMEMBER_S = 60
"""How long caches on the way may answer in our place: never past its time, but so long after a
paste was deleted."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; sandbox"


class Shown(BaseModel):
    """A paste with its content."""

    id: str
    content: str
    language: str
    visibility: str
    size: int
    createdAt: int = Field(description="Milliseconds since 1970.")  # noqa: N815
    expiresAt: int | None = Field(description="Milliseconds since 1970.")  # noqa: N815
    burnAfterRead: bool = Field(description="Nobody else will read it.")  # noqa: N815


class Tombstone(BaseModel):
    """How a paste ended, and what became of its content."""

    id: str
    ended: Literal["burned", "deleted", "expired"]
    endedAt: int = Field(description="Of the last event, in milliseconds since 1970.")  # noqa: N815
    content: Literal["purged", "purging", "log"] = Field(
        description="`purged`: gone from the object store; `purging`: it will be, or another paste "
        "needs it; `log`: it was small, gone from the tables and in the log alone."
    )
    position: str = Field(description="The event that says so: topic, partition, offset.")


async def viewer(request: Request) -> str:
    """Dependency: who reads; empty for somebody without a token."""
    principal: Principal | None = request.scope["state"].get("principal")
    if principal is None:
        return ""
    require(principal, READ)
    return principal.subject


ViewerDep = Annotated[str, Depends(viewer)]
PasswordHeader = Annotated[str, Header(alias="Paste-Password", max_length=CHARS_MAX)]
fresh_table = fresh("pastes", EVENTS)


async def found(
    paste: PasteId,
    services: ServicesDep,
    viewer: ViewerDep,
    _: Annotated[Any, Depends(fresh_table)],
    password: PasswordHeader = "",
) -> Read[Paste]:
    """Dependency: the paste and its content, after which it may be burned."""
    reading: Reading[Paste] = services.opened("pastes-reading")
    try:
        return await reading.read(paste, viewer, password)
    except Absent:
        raise _absent() from None
    except Gone as gone:
        detail = f"this paste has been {gone.how}" if gone.how != "expired" else "it has expired"
        raise Problem(HTTPStatus.GONE, gone.how, detail) from None
    except WrongPassword:
        kind = "wrong-password" if password else "password-required"
        detail = "send the password of this paste as Paste-Password"
        raise Problem(HTTPStatus.FORBIDDEN, kind, detail) from None
    except (NotYet, NoVerdict) as error:
        raise busy("this paste cannot be read now") from error


ANYBODY: Final[dict[str, Any]] = {"security": [{}, {"bearer": []}]}
"""OpenAPI entry of a route that takes a token and does without."""
FoundDep = Annotated[Read[Paste], Depends(found)]

router = APIRouter(
    prefix="/v1/pastes/{paste}",
    tags=["pastes"],
    responses={**responses(404, 410, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("", response_model=Shown, openapi_extra=ANYBODY)
async def read(one: FoundDep, told: Response) -> Response:
    """A paste with its content. One that burns is gone with this answer."""
    paste = one.paste
    shown = {
        "id": paste.id,
        "content": one.content.decode(),
        "language": paste.language,
        "visibility": paste.visibility,
        "size": paste.size,
        "createdAt": paste.created_ms,
        "expiresAt": paste.expires_ms,
        "burnAfterRead": paste.burn,
    }
    return _answer(one, told, msgspec.json.encode(shown), "application/json")


@router.get("/raw", response_class=Response, openapi_extra=ANYBODY)
async def raw(one: FoundDep, told: Response) -> Response:
    """The content alone, as plain text."""
    return _answer(one, told, one.content, "text/plain; charset=utf-8")


@router.get("/html", response_class=Response, openapi_extra=ANYBODY)
async def highlighted(one: FoundDep, told: Response, services: ServicesDep) -> Response:
    """The content as a page, highlighted as its language is."""
    highlighter: Highlighter = services.opened("pastes-highlighter")
    page = await highlighter.page(one.content, one.paste.language)
    answer = _answer(one, told, page.encode(), "text/html; charset=utf-8")
    answer.headers["Content-Security-Policy"] = POLICY
    return answer


@router.get("/tombstone", openapi_extra=ANYBODY)
async def tombstone(
    paste: PasteId,
    services: ServicesDep,
    viewer: ViewerDep,
    _: Annotated[Any, Depends(fresh_table)],
) -> Tombstone:
    """How a paste ended, and the event that proves it."""
    reading: Reading[Paste] = services.opened("pastes-reading")
    try:
        known = await reading.known(paste, viewer)
    except Absent:
        raise _absent() from None
    if not known.ended:
        detail = "no end of this paste is recorded"
        raise Problem(HTTPStatus.NOT_FOUND, "no-tombstone", detail)
    kept = "purging" if known.object else "log"
    content = "purged" if known.change == "purged" else kept
    place = f"{EVENTS.name}/{partition_of(paste, EVENTS.partitions)}/{known.offset}"
    return Tombstone(
        id=paste,
        ended=known.ended,  # type: ignore[arg-type]
        endedAt=known.changed_ms,
        content=content,  # type: ignore[arg-type]
        position=place,
    )


def _answer(one: Read[Paste], told: Response, body: bytes, media_type: str) -> Response:
    """The content in one of its forms; caches may keep what everybody with the id may read."""
    paste, remember = one.paste, "no-store"
    if paste.visibility != "private" and not paste.burn and not paste.lock:
        left_s = REMEMBER_S if one.left_ms is None else one.left_ms // 1_000
        remember = f"public, max-age={min(left_s, REMEMBER_S)}"
    headers = {"Cache-Control": remember, "Vary": "Authorization, Paste-Password"}
    if APPLIED in told.headers:
        headers[APPLIED] = told.headers[APPLIED]
    return Response(body, 200, headers, media_type)


def _absent() -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "no-paste", "there is no such paste")
