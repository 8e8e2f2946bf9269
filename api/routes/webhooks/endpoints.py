"""Endpoints of a tenant: create, change, switch, rotate the secret, make up for what was missed."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api import ingest
from api.auth import MODERATE, READ, WRITE, requires
from api.commands import AskedDep, ask
from api.json_route import JsonRoute
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.webhooks import inputs
from api.routes.webhooks.inputs import EndpointPath, TenantPath
from api.services import ServicesDep
from connectors.webhooks import new_secret
from schemas.webhooks import events
from sinks.webhooks import reader

PAGE_MAX = 200

ReadsDep = Annotated[reader.WebhooksReader, Depends(fresh("webhooks", events.EVENTS))]


class Changed(BaseModel):
    """A change that is decided."""

    id: str
    revision: int


class Requested(BaseModel):
    """Deliveries that were asked for."""

    id: str
    deliveries: int = Field(description="Decided so far; a recovery goes on by itself.")


class Pending(BaseModel):
    """A command without a verdict yet; `Location` says where to ask."""

    state: Literal["pending"]
    command: str


class Endpoint(BaseModel):
    """An endpoint as it stands; its secrets are not shown here."""

    id: str
    url: str
    event_types: list[str]
    ordered: bool
    rate_per_s: int
    description: str
    disabled: str = Field(description="by_hand, failing (for five days), gone; empty for enabled.")
    revision: int
    created_ms: int
    changed_ms: int


class Secret(BaseModel):
    """A secret that messages are signed with."""

    secret: str
    expires_ms: int | None = Field(description="Not used from then on; null for the current one.")


class Deliveries(BaseModel):
    """A part of an endpoint's deliveries, newest first."""

    items: list[reader.Delivery]
    next: int | None = Field(description="The cursor of the next page; null at the end.")


router = APIRouter(
    prefix="/v1/webhooks/{tenant}/endpoints",
    tags=["webhooks"],
    route_class=JsonRoute,
    responses=responses(404, 504),
)
_READ: dict[str, Any] = {
    "dependencies": [requires(READ)],
    "responses": {200: {"headers": ingest.APPLIED_HEADER}},
}
_WRITE: dict[str, Any] = {
    "dependencies": [requires(WRITE)],
    "response_model": Changed,
    "responses": {
        **responses(400, 409, 413, 415),
        200: {"headers": ingest.POSITION_HEADER},
        202: {"model": Pending, "headers": ingest.POSITION_HEADER},
    },
}
_ASK = _WRITE | {"response_model": Requested | Pending, "status_code": 202}


@router.post("", **(_WRITE | {"status_code": 201}))
async def create(
    tenant: TenantPath, wanted: inputs.NewEndpoint, asked: AskedDep, services: ServicesDep
) -> Response:
    """Create an endpoint. It gets every message that is published from now on."""
    id_ = wanted.id or asked.new_id("endpoint")
    row = _command(tenant, id_, wanted, create=True, secret=wanted.secret or new_secret())
    return await ask(services, asked, events.COMMANDS, events.SAVE_ENDPOINT.name, row)


@router.put("/{endpoint}", **_WRITE)
async def change(
    tenant: TenantPath,
    endpoint: EndpointPath,
    wanted: inputs.Endpoint,
    asked: AskedDep,
    services: ServicesDep,
) -> Response:
    """Replace an endpoint's settings. Tries of earlier messages go to the new URL, too."""
    row = _command(tenant, endpoint, wanted, create=False, secret="")
    return await ask(services, asked, events.COMMANDS, events.SAVE_ENDPOINT.name, row)


@router.delete("/{endpoint}", **_WRITE)
async def delete(
    tenant: TenantPath, endpoint: EndpointPath, asked: AskedDep, services: ServicesDep
) -> Response:
    """Delete an endpoint. What it has not got yet, it does not get."""
    row = events.DeleteEndpoint(tenant, endpoint)
    return await ask(services, asked, events.COMMANDS, events.DELETE_ENDPOINT.name, row)


@router.post("/{endpoint}/rotate-secret", **_WRITE)
async def rotate(
    tenant: TenantPath,
    endpoint: EndpointPath,
    wanted: inputs.Rotation,
    asked: AskedDep,
    services: ServicesDep,
) -> Response:
    """Replace the secret. Messages are signed with both until the overlap is over."""
    row = events.RotateSecret(tenant, endpoint, wanted.secret or new_secret(), wanted.overlap_ms)
    return await ask(services, asked, events.COMMANDS, events.ROTATE_SECRET.name, row)


@router.post("/{endpoint}/enable", **_WRITE)
async def enable(
    tenant: TenantPath, endpoint: EndpointPath, asked: AskedDep, services: ServicesDep
) -> Response:
    """Switch an endpoint on. What it missed is not sent by itself: see `recover`."""
    row = events.SetEndpointEnabled(tenant, endpoint, enabled=True)
    return await ask(services, asked, events.COMMANDS, events.SET_ENDPOINT_ENABLED.name, row)


@router.post("/{endpoint}/disable", **_WRITE)
async def disable(
    tenant: TenantPath, endpoint: EndpointPath, asked: AskedDep, services: ServicesDep
) -> Response:
    """Switch an endpoint off."""
    row = events.SetEndpointEnabled(tenant, endpoint, enabled=False)
    return await ask(services, asked, events.COMMANDS, events.SET_ENDPOINT_ENABLED.name, row)


@router.post("/{endpoint}/recover", **_ASK)
async def recover(
    tenant: TenantPath,
    endpoint: EndpointPath,
    wanted: inputs.Recovery,
    asked: AskedDep,
    services: ServicesDep,
) -> Response:
    """Deliver all messages since a time that the endpoint wants and has not got: those that
    failed, were skipped, or came while it was disabled. Goes back 720 hours with messages at most.
    """
    row = events.RecoverMessages(tenant, endpoint, asked.new_id("recovery"), wanted.since)
    return await ask(services, asked, events.COMMANDS, events.RECOVER_MESSAGES.name, row)


@router.get("", **_READ)
async def endpoints(tenant: TenantPath, source: ReadsDep) -> list[Endpoint]:
    """A tenant's endpoints, the oldest first."""
    return [_shown(one) for one in await source.endpoints(tenant)]


@router.get("/{endpoint}", **_READ)
async def endpoint(tenant: TenantPath, endpoint: EndpointPath, source: ReadsDep) -> Endpoint:
    """One endpoint."""
    return _shown(await found(source, tenant, endpoint))


@router.get("/{endpoint}/secrets", **(_READ | {"dependencies": [requires(MODERATE)]}))
async def secrets(tenant: TenantPath, endpoint: EndpointPath, source: ReadsDep) -> list[Secret]:
    """The secrets in use, the current one first."""
    stored = (await found(source, tenant, endpoint)).secrets
    return [Secret(secret=secret, expires_ms=expires_ms) for secret, expires_ms in stored]


@router.get("/{endpoint}/deliveries", **_READ)
async def deliveries(
    tenant: TenantPath,
    endpoint: EndpointPath,
    source: ReadsDep,
    cursor: Annotated[int | None, Query(ge=0, le=2**53, description="Of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> Deliveries:
    """What became of the messages at an endpoint, newest first."""
    rows, following = await source.deliveries(tenant, endpoint, cursor, limit)
    return Deliveries(items=rows, next=following)


async def found(source: reader.WebhooksReader, tenant: str, endpoint: str) -> reader.Endpoint:
    """The endpoint. Raises 404 where there is none (any more)."""
    one = await source.endpoint(tenant, endpoint)
    if one is None or one.deleted:
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-endpoint", "there is no such endpoint")
    return one


def _command(
    tenant: str, id_: str, wanted: inputs.Endpoint, *, create: bool, secret: str
) -> events.SaveEndpoint:
    return events.SaveEndpoint(
        tenant,
        id_,
        create,
        wanted.url,
        list(dict.fromkeys(wanted.event_types)),
        wanted.ordered,
        wanted.rate_per_s,
        wanted.description,
        secret,
    )


def _shown(one: reader.Endpoint) -> Endpoint:
    return Endpoint(
        id=one.endpoint_id,
        url=one.url,
        event_types=list(one.event_types),
        ordered=one.ordered,
        rate_per_s=one.rate_per_s,
        description=one.description,
        disabled=one.disabled,
        revision=one.revision,
        created_ms=one.created_ms,
        changed_ms=one.changed_ms,
    )
