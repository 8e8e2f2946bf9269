"""Messages of a tenant: publish, send again, read by number, and every try to deliver one."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, WRITE, requires
from api.commands import AskedDep, ask
from api.json_route import JsonRoute
from api.problem import Problem, responses
from api.routes.webhooks import inputs
from api.routes.webhooks.endpoints import Pending, ReadsDep, Requested, found
from api.routes.webhooks.inputs import EndpointPath, MessagePath, TenantPath
from api.services import ServicesDep
from schemas.webhooks import events
from sinks.webhooks import reader

PAGE_MAX = 500


class Published(BaseModel):
    """A message that is taken."""

    id: str = Field(description="The webhook-id that receivers see.")
    sequence: int = Field(description="Its number within the tenant, without gaps.")
    deliveries: int


class Message(BaseModel):
    """A message as it is delivered."""

    id: str
    sequence: int
    event_type: str
    order_key: str
    payload: dict[str, Any]
    at_ms: int


class Messages(BaseModel):
    """Messages in the order of the log."""

    items: list[Message]
    next: int = Field(description="Send it as `cursor` for what follows, now or later.")


class MessageWithAttempts(Message):
    """A message and every try to deliver it."""

    attempts: list[reader.Attempt]


router = APIRouter(
    prefix="/v1/webhooks/{tenant}/messages",
    tags=["webhooks"],
    route_class=JsonRoute,
    responses=responses(504),
)
_READ: dict[str, Any] = {
    "dependencies": [requires(READ)],
    "responses": {**responses(404), 200: {"headers": ingest.APPLIED_HEADER}},
}
_WRITE: dict[str, Any] = {
    "dependencies": [requires(WRITE)],
    "status_code": 202,
    "responses": {
        **responses(400, 404, 409, 413, 415),
        202: {"headers": ingest.POSITION_HEADER},
    },
}


@router.post("", response_model=Published | Pending, **_WRITE)
async def publish(
    tenant: TenantPath, wanted: inputs.Message, asked: AskedDep, services: ServicesDep
) -> Response:
    """Publish a message to all endpoints of the tenant that want it."""
    body = wanted.body
    if len(body.encode()) > inputs.BODY_BYTES_MAX:
        raise Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            "payload-too-large",
            f"a payload has at most {inputs.BODY_BYTES_MAX:,} bytes as JSON",
        )
    row = events.PublishMessage(
        tenant, asked.new_id("message"), wanted.event_type, wanted.order_key, body
    )
    return await ask(services, asked, events.COMMANDS, events.PUBLISH_MESSAGE.name, row)


@router.get("", **_READ)
async def pull(
    tenant: TenantPath,
    source: ReadsDep,
    cursor: Annotated[int, Query(ge=0, le=2**53, description="Of an earlier answer.")] = 0,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 100,
) -> Messages:
    """The messages from a cursor on: what is delivered, to be fetched instead. The numbers have no
    gaps, so who keeps the last cursor misses nothing, however long it was away.
    """
    rows = await source.messages(tenant, cursor, limit)
    following = rows[-1].sequence + 1 if rows else cursor
    return Messages(items=[Message(**_shown(one)) for one in rows], next=following)


@router.get("/{message}", **_READ)
async def message(
    tenant: TenantPath, message: MessagePath, source: ReadsDep
) -> MessageWithAttempts:
    """A message and every try to deliver it."""
    one = await _found(source, tenant, message)
    return MessageWithAttempts(
        **_shown(one), attempts=await source.attempts(tenant, one.message_id)
    )


@router.post("/{message}/endpoints/{endpoint}/resend", response_model=Requested | Pending, **_WRITE)
async def resend(  # noqa: PLR0917 -- FastAPI gives them by name
    tenant: TenantPath,
    message: MessagePath,
    endpoint: EndpointPath,
    asked: AskedDep,
    services: ServicesDep,
    source: ReadsDep,
) -> Response:
    """Deliver a message to an endpoint once more, with the same webhook-id."""
    one = await _found(source, tenant, message)
    await found(source, tenant, endpoint)
    again = events.ResentMessage(
        message_id=one.message_id,
        sequence=one.sequence,
        event_type=one.event_type,
        order_key=one.order_key,
    )
    row = events.ResendMessages(tenant, endpoint, asked.new_id("resend"), [again], None, 0, 0)
    return await ask(services, asked, events.COMMANDS, events.RESEND_MESSAGES.name, row)


async def _found(source: reader.WebhooksReader, tenant: str, id_: str) -> reader.Message:
    number = await source.number(tenant, id_)
    one = None if number is None else await source.message(tenant, number)
    if one is None:
        raise Problem(HTTPStatus.NOT_FOUND, "unknown-message", "there is no such message")
    return one


def _shown(one: reader.Message) -> dict[str, Any]:
    return {
        "id": one.message_id,
        "sequence": one.sequence,
        "event_type": one.event_type,
        "order_key": one.order_key,
        "payload": json.loads(one.body),
        "at_ms": one.at_ms,
    }
