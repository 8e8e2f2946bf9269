"""Typeahead: searches in, suggestions out, and the list of what is never suggested.

`PUT` and `DELETE` of a blocked phrase go to the log; every API process follows it, so the phrase is
gone everywhere a moment later (`Headrace-After` on a read waits for this process), whatever
snapshot answers. Both may be repeated.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import AfterValidator, BaseModel, Field

from api import ingest, positions
from api.auth import MODERATE, READ, Principal, requires
from api.ingest import Accepted
from api.json_route import JsonRoute
from api.models import Id, Input, Text, clean_text
from api.positions import AppliedSource
from api.problem import InputError, Problem, busy, invalid, responses
from api.reads import fresh
from api.services import ServicesDep
from schemas.typeahead import events
from schemas.typeahead.folding import QUERY_CHARS_MAX, folded
from sinks.typeahead.snapshots import Pointer
from sinks.typeahead.suggester import NotReady
from sinks.typeahead.suggester import Suggestion as Found

LIMIT_MAX = 20
CACHED_S = 2
"""How long a cache in front may answer for us; for so long it may show what was blocked since."""


class Suggestion(BaseModel):
    """One suggestion."""

    text: str
    source: Literal["own", "popular", "trending", "similar"] = Field(
        description="`own`: the user has searched for it. `similar`: it is one edit away."
    )


class Suggestions(BaseModel):
    """What is suggested, best first."""

    suggestions: list[Suggestion]


class Snapshot(BaseModel):
    """The snapshot that answers in this process."""

    id: str
    digest: str
    terms: int
    as_of_ms: int = Field(description="The newest hour that was counted.")
    positions: Mapping[str, int] = Field(
        description="`topic/partition` → the first offset that is not in it."
    )


class BlockInput(Input):
    """Why a phrase is blocked."""

    reason: Text = ""


class Blocked(BaseModel):
    """A blocked phrase."""

    phrase: str
    reason: str


class SuggestReads(AppliedSource, Protocol):
    """What is asked of `sinks.typeahead.suggester.Suggester`."""

    @property
    def snapshot(self) -> Pointer | None: ...
    async def suggest(self, typed: str, limit: int, user_id: str | None) -> Sequence[Found]: ...


class BlocklistReads(AppliedSource, Protocol):
    """The blocklist in this process."""

    phrases: Mapping[str, str]


Typed = Annotated[
    str,
    Query(max_length=QUERY_CHARS_MAX, description="What has been typed so far."),
    AfterValidator(clean_text),
]
Phrase = Annotated[Id, Path(description="The words, in any spelling that folds to them.")]
SuggestDep = Annotated[SuggestReads, Depends(fresh("typeahead", events.QUERIES, events.BLOCKLIST))]
BlocklistDep = Annotated[BlocklistReads, Depends(fresh("typeahead-blocklist", events.BLOCKLIST))]
Moderator = Annotated[Principal, requires(MODERATE)]

_EXAMPLES: Mapping[str, Any] = {
    "QuerySearched": {
        "type": "QuerySearched",
        "query_id": "q-01",
        "user_id": "u-7",
        "query": "Waiting for Godot",
        "finished": True,
        "hits": 12,
        "event_time": "2026-01-01T00:00:00Z",
    },
}
writes = ingest.router(
    "typeahead",
    (ingest.Accepts(events.QUERIES, events.QUERY_SEARCHED, "query_id"),),
    _EXAMPLES,
)

_READ: dict[int | str, dict[str, Any]] = {200: {"headers": ingest.APPLIED_HEADER}}
_WRITTEN: dict[int | str, dict[str, Any]] = {202: {"headers": ingest.POSITION_HEADER}}

router = APIRouter(
    prefix="/v1",
    tags=["typeahead"],
    dependencies=[requires(READ)],
    responses={**responses(503, 504), **_READ},
)


@router.get("/suggest", response_model=Suggestions)
async def suggest(
    q: Typed,
    source: SuggestDep,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=LIMIT_MAX, description="How many at most.")] = 5,
    user: Annotated[
        Id | None, Query(description="Whose own searches come first; nobody's if left out.")
    ] = None,
) -> dict[str, Any]:
    """What to suggest for what was typed; of nothing typed, what is most popular."""
    try:
        found = await source.suggest(q, limit, user)
    except NotReady as error:
        raise busy(str(error)) from error
    if user is None:
        response.headers["Cache-Control"] = f"public, max-age={CACHED_S}"
    return {"suggestions": [Suggestion(text=one.text, source=one.source) for one in found]}


@router.get("/typeahead/snapshot", responses=responses(404))
async def snapshot(source: SuggestDep) -> Snapshot:
    """The snapshot that answers."""
    if source.snapshot is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-snapshot", "no snapshot has been built yet")
    return Snapshot.model_validate(source.snapshot, from_attributes=True)


blocklist = APIRouter(
    prefix="/v1/typeahead/blocklist",
    tags=["typeahead"],
    route_class=JsonRoute,
    responses=responses(413),
)


@blocklist.put("/{phrase}", status_code=202, responses=responses(415) | _WRITTEN)
async def block(
    phrase: Phrase,
    given: BlockInput,
    response: Response,
    services: ServicesDep,
    principal: Moderator,
) -> Accepted:
    """Block every suggestion that has these words in it, one after the other."""
    row = {"phrase": _folded(phrase), "reason": given.reason, "blocked_by": principal.subject}
    return await _sent(services, response, events.PHRASE_BLOCKED.name, row)


@blocklist.delete("/{phrase}", status_code=202, responses=_WRITTEN)
async def unblock(
    phrase: Phrase, response: Response, services: ServicesDep, principal: Moderator
) -> Accepted:
    """Allow it again. A snapshot that was built meanwhile is without it; the next has it."""
    row = {"phrase": _folded(phrase), "unblocked_by": principal.subject}
    return await _sent(services, response, events.PHRASE_UNBLOCKED.name, row)


@blocklist.get("", dependencies=[requires(READ)], responses=responses(504) | _READ)
async def blocked(source: BlocklistDep) -> list[Blocked]:
    """The blocked phrases, as this process knows them."""
    return [Blocked(phrase=one, reason=reason) for one, reason in sorted(source.phrases.items())]


def _folded(phrase: str) -> str:
    found = folded(phrase)
    if not found:
        detail = "nothing of it can be seen"
        raise invalid(detail, InputError(detail=detail, parameter="phrase"))
    return found


async def _sent(services: ServicesDep, response: Response, record: str, row: Any) -> Accepted:
    row["event_time"] = time.time_ns() // 1_000_000
    sent = await services.producer.send(events.BLOCKLIST.name, record, row)
    response.headers[positions.POSITION] = positions.header([sent])
    return Accepted(id=row["phrase"], position=ingest.place(sent))


ROUTERS = (writes, router, blocklist)
