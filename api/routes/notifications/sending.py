"""Sending: notifications, campaigns, and the templates that both are made of."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Response
from pydantic import BaseModel, Field

from api import ingest, positions
from api.auth import MODERATE, READ, WRITE, requires
from api.commands import AskedDep, ask
from api.json_route import JsonRoute
from api.models import Id
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.notifications import inputs
from api.routes.notifications.recipients import Pending
from api.routes.notifications.texts import Compiled, TemplateReads, bad_template, tried
from api.services import ServicesDep
from connectors.notifications.templates import Template, TemplateError, version
from schemas.notifications import events

TemplatesDep = Annotated[TemplateReads, Depends(fresh("notifications-templates", events.TEMPLATES))]
TemplateName = Annotated[inputs.Name, Path(description="The type.")]
_compiled = Compiled()


class Accepted(BaseModel):
    """What was decided about a notification."""

    id: str
    status: Literal["released", "scheduled", "held", "digested", "suppressed", "repeated"]
    digest: str | None = Field(default=None, description="The digest it goes into.")
    due_at: int | None = Field(default=None, description="When it comes next, milliseconds.")


class Cancelled(BaseModel):
    """A notification that will not be sent."""

    id: str
    status: Literal["cancelled"]


class CampaignAccepted(BaseModel):
    """A part of a campaign is durable in the log."""

    campaign_id: str
    part: int
    recipients: int


class Published(BaseModel):
    """A version of a template."""

    type: str
    version: str


class TemplateVersion(Published):
    """A version of a template, in full."""

    priority: str
    default_locale: str
    contents: list[dict[str, str]]
    digest_window_ms: int
    lifetime_ms: int
    published_at: int


router = APIRouter(
    prefix="/v1",
    tags=["notifications"],
    route_class=JsonRoute,
    responses=responses(400, 413, 415, 504),
)


@router.post(
    "/notifications",
    status_code=202,
    response_model=Accepted | Pending,
    responses={202: {"headers": ingest.POSITION_HEADER}, 200: {"model": Accepted}},
    dependencies=[requires(WRITE)],
)
async def send(
    wanted: inputs.Notification, asked: AskedDep, services: ServicesDep, texts: TemplatesDep
) -> Response:
    """Send a notification to one recipient, now or later. 200: it was sent before."""
    template = await _compiled.find(texts, wanted.type)
    channels = tried(template, wanted.channels, inputs.params_json(wanted.params))
    key = wanted.idempotency_key or asked.key
    row = wanted.command(
        asked.new_id("notification"),
        template.published,
        f"{asked.subject}:{key}" if key else "",
        _now_ms(),
    )
    row = replace(row, channels=channels)
    return await ask(services, asked, events.COMMANDS, events.SEND_NOTIFICATION.name, row)


@router.post(
    "/users/{user_id}/notifications/{notification_id}/cancel",
    response_model=Cancelled,
    responses={
        **responses(409),
        200: {"headers": ingest.POSITION_HEADER},
        202: {"model": Pending, "headers": ingest.POSITION_HEADER},
    },
    dependencies=[requires(WRITE)],
)
async def cancel(
    user_id: Id, notification_id: Id, asked: AskedDep, services: ServicesDep
) -> Response:
    """Cancel what waits for its time. 409: it was sent, cancelled or never accepted."""
    row = events.CancelNotification(user_id, notification_id)
    return await ask(services, asked, events.COMMANDS, events.CANCEL_NOTIFICATION.name, row)


@router.post(
    "/notification-campaigns",
    status_code=202,
    responses={202: {"headers": ingest.POSITION_HEADER}},
    dependencies=[requires(WRITE)],
)
async def send_campaign(
    wanted: inputs.Campaign, services: ServicesDep, texts: TemplatesDep, response: Response
) -> CampaignAccepted:
    """Send the same to many, at the pace of the recipients' deciders. Not for one-time codes."""
    template = await _compiled.find(texts, wanted.type)
    params = inputs.params_json(wanted.params)
    channels = tried(template, wanted.channels, params)
    if template.published.priority == "otp":
        raise Problem(HTTPStatus.BAD_REQUEST, "no-campaign", "one-time codes are for one person")
    row = events.CampaignSubmitted(
        chunk_id=f"{wanted.campaign_id}/{wanted.part}",
        campaign_id=wanted.campaign_id,
        template=wanted.type,
        template_version=template.published.version,
        priority=template.published.priority,
        channels=channels,
        params=params,
        user_ids=list(dict.fromkeys(wanted.user_ids)),
        happened_at=_now_ms(),
        send_at=wanted.send_at,
        expires_at=wanted.expires_at,
    )
    sent = await services.producer.send(
        events.CAMPAIGNS.name, events.CAMPAIGN_SUBMITTED.name, asdict(row)
    )
    response.headers[positions.POSITION] = positions.header([sent])
    return CampaignAccepted(
        campaign_id=wanted.campaign_id, part=wanted.part, recipients=len(row.user_ids)
    )


@router.put(
    "/notification-templates/{name}",
    responses={200: {"headers": ingest.POSITION_HEADER}},
    dependencies=[requires(MODERATE)],
)
async def publish(
    name: TemplateName, wanted: inputs.Template, services: ServicesDep, response: Response
) -> Published:
    """Publish a template. 400, with the place, where it cannot be compiled."""
    event = wanted.event(name, _now_ms())
    event = replace(event, version=version(event))
    try:
        Template(event)
    except TemplateError as error:
        raise bad_template(str(error), "#/contents") from None
    sent = await services.producer.send(
        events.TEMPLATES.name, events.TEMPLATE_PUBLISHED.name, asdict(event)
    )
    response.headers[positions.POSITION] = positions.header([sent])
    return Published(type=name, version=event.version)


@router.get(
    "/notification-templates/{name}",
    responses={**responses(404), 200: {"headers": ingest.APPLIED_HEADER}},
    dependencies=[requires(READ)],
)
async def template(name: TemplateName, texts: TemplatesDep) -> TemplateVersion:
    """The current version of a template."""
    found = await texts.template(name)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-template", "there is no such template")
    told: dict[str, Any] = asdict(found)
    return TemplateVersion(type=told.pop("template"), **told)


def _now_ms() -> int:
    return int(time.time() * 1_000)
