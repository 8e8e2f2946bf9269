"""Unique ids: made, hidden, taken apart; worker leases and ranges of numbers.

Ids are made in this process, from a lease of the log, without I/O. They are texts in JSON, which
many clients read with 53 bits.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol, cast

import uuid_utils
from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, Field
from ulid import ULID

from api import ingest
from api.auth import READ, WRITE, requires
from api.commands import VERDICT, AskedDep, ask
from api.json_route import JsonRoute
from api.models import Input
from api.positions import AppliedSource
from api.problem import Problem, busy, invalid, responses
from api.reads import fresh
from api.services import ServicesDep
from connectors.asking import NoVerdict, Refused
from connectors.ids.generator import Behind
from connectors.ids.issuer import Issuer
from schemas.ids import events
from schemas.ids.snowflake import ID_MAX, PUBLIC_CHARS, WORKERS, parts
from sinks import ids as store
from streams.runtime.permutation import Codes

COUNT_MAX = 10_000
SPACE = r"^[a-z][a-z0-9_.-]{0,63}$"

Kind = Literal["snowflake", "public", "uuidv7", "ulid"]
Space = Annotated[str, Field(pattern=SPACE)]


class NewIds(Input):
    """What ids are wanted."""

    kind: Kind = Field(
        default="snowflake",
        description="`snowflake`: 64 bits, rising. `public`: those under a secret permutation, "
        "so that neither order nor number shows. `uuidv7` (RFC 9562), `ulid`: 128 bits, half of "
        "them random.",
    )
    count: Annotated[int, Field(ge=1, le=COUNT_MAX)] = 1


class MadeIds(BaseModel):
    """New ids, in the order they were made."""

    kind: Kind
    ids: list[str]
    worker: int | None = Field(default=None, description="The worker number in them.")
    epoch: int | None = Field(default=None, description="Offset of its lease in the log.")


class Decoded(BaseModel):
    """What an id says. Random bits say nothing and are not shown."""

    kind: Kind
    time: datetime = Field(description="When it was made, to the millisecond.")
    time_ms: int
    id: str | None = Field(default=None, description="Of a public id, the id behind it.")
    public: str | None = Field(default=None, description="Of an id, its public form.")
    worker: int | None = None
    sequence: int | None = None


class NewRange(Input):
    """What range is wanted."""

    space: Space = "main"
    size: Annotated[int, Field(ge=1, le=1_000_000)]


class IdReads(AppliedSource, Protocol):
    """What the read route asks; `sinks.ids.IdsReader` answers."""

    async def leases(self, space: str, worker: int) -> Sequence[store.Lease]:
        """Every lease of a worker number, the latest first."""
        ...


async def codes(services: ServicesDep) -> Codes:
    """Dependency: the permutation of public ids."""
    return cast("Codes", services.opened("ids-codes"))


CodesDep = Annotated[Codes, Depends(codes)]

writes = APIRouter(
    prefix="/v1",
    tags=["ids"],
    route_class=JsonRoute,
    dependencies=[requires(WRITE)],
    responses=responses(400, 403, 413, 415),
)


@writes.post("/ids", status_code=201)
async def make_ids(wanted: NewIds, services: ServicesDep, public: CodesDep) -> MadeIds:
    """Make up to 10,000 ids at once. Every call makes new ones; 503 where this server can make
    none, because its lease has run out and the log does not answer, or its clock is behind.
    """
    if wanted.kind == "uuidv7":
        return MadeIds(kind="uuidv7", ids=[str(uuid_utils.uuid7()) for _ in range(wanted.count)])
    if wanted.kind == "ulid":
        made = (ULID.from_bytes(uuid_utils.uuid7().bytes) for _ in range(wanted.count))
        return MadeIds(kind="ulid", ids=[str(one) for one in made])
    issuer: Issuer = services.opened("ids-issuer")
    try:
        numbers, held = await issuer.take(wanted.count)
    except (Behind, NoVerdict, Refused) as error:
        raise busy(f"no ids can be made now: {error}") from error
    shown = str if wanted.kind == "snowflake" else public.code
    ids = list(map(shown, numbers.tolist()))
    return MadeIds(kind=wanted.kind, ids=ids, worker=held.generator.worker, epoch=held.epoch)


@writes.post("/id-ranges", status_code=201, responses={**VERDICT, **responses(409)})
async def allocate_range(new: NewRange, services: ServicesDep, asked: AskedDep) -> Response:
    """Consecutive numbers that nobody else gets; what is not used of them is lost."""
    row = events.AllocateRange(new.space, asked.subject, new.size)
    return await ask(services, asked, events.COMMANDS, events.ALLOCATE_RANGE.name, row)


router = APIRouter(
    prefix="/v1", tags=["ids"], dependencies=[requires(READ)], responses=responses(404, 504)
)


@router.get("/ids/{id}", response_model_exclude_none=True)
async def decode(
    id: Annotated[str, Path(max_length=64, description="An id of any kind.")],
    public: CodesDep,
) -> Decoded:
    """Take an id apart: when it was made, by which worker, its public form or what is behind it.

    Which lease the worker had then is at `/v1/id-workers/{worker}/leases`.
    """
    try:
        found = _decoded(id, public)
    except ValueError as error:
        raise invalid(f"not an id of any kind: {error}") from error
    return Decoded(**found, time=datetime.fromtimestamp(found["time_ms"] / 1_000, UTC))


def _decoded(text: str, public: Codes) -> dict[str, Any]:
    if text.isascii() and text.isdigit() and len(text) != PUBLIC_CHARS:
        return {"kind": "snowflake", "public": public.code(int(text)), **_parts(int(text))}
    if len(text) == PUBLIC_CHARS:
        number = public.number(text)
        if number > ID_MAX:
            raise ValueError("nobody was given this public id")
        return {"kind": "public", "id": str(number), **_parts(number)}
    if len(text) == ULID_CHARS:
        return {"kind": "ulid", "time_ms": int(ULID.from_str(text).milliseconds)}
    found = uuid.UUID(text)
    if found.version != UUID_VERSION:
        raise ValueError(f"a UUID of version {found.version} holds no time that is read here")
    return {"kind": "uuidv7", "time_ms": found.int >> 80}


ULID_CHARS = 26
UUID_VERSION = 7


def _parts(number: int) -> dict[str, int]:
    told = parts(number)
    return {"time_ms": told.time_ms, "worker": told.worker, "sequence": told.sequence}


@router.get(
    "/id-workers/{worker}/leases",
    response_model=list[store.Lease],
    responses={200: {"headers": ingest.APPLIED_HEADER}},
)
async def leases(
    worker: Annotated[int, Path(ge=0, lt=WORKERS)],
    source: Annotated[IdReads, Depends(fresh("ids", events.EVENTS))],
    space: Annotated[str, Query(pattern=SPACE)] = "main",
) -> Sequence[store.Lease]:
    """Who made ids of this worker number, and when: every lease, the latest first."""
    found = await source.leases(space, worker)
    if not found:
        raise Problem(HTTPStatus.NOT_FOUND, "no-worker", "this worker number was never leased")
    return found


ROUTERS = (writes, router)
