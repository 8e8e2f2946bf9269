"""Recipients and what they got: preferences, addresses, lists, timelines."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, WRITE, requires
from api.commands import AskedDep, ask
from api.json_route import JsonRoute
from api.models import Id
from api.positions import AppliedSource
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.notifications import inputs
from api.services import ServicesDep
from schemas.notifications import events
from sinks.notifications import reader

PAGE_MAX = 200


class Step(BaseModel):
    """Something that was decided about a notification, or reported about a delivery."""

    at_ms: int
    step: str
    detail: dict[str, Any]


class Delivery(BaseModel):
    """A message to one address and what is known of it."""

    id: str
    channel: str
    status: str = Field(description="sending, sent, delivered, failed, expired, invalid_address")
    provider: str
    detail: str


class Timeline(BaseModel):
    """A notification, step by step."""

    id: str
    user_id: str
    status: str
    template: str
    priority: str
    preferences_revision: int = Field(
        description="Revision of the preferences in force when it was decided about last."
    )
    preferences: dict[str, Any] | None = Field(description="These preferences.")
    deliveries: list[Delivery]
    timeline: list[Step]


class Listed(BaseModel):
    """One line of a recipient's list."""

    id: str
    template: str
    priority: str
    at_ms: int


class Page(BaseModel):
    """A part of a recipient's list, newest first."""

    items: list[Listed]
    next: str | None = Field(description="The cursor of the next page; null at the end.")


class Recipient(BaseModel):
    """Addresses and preferences of a recipient."""

    user_id: str
    email: str
    phone: str
    devices: list[dict[str, str]]
    preferences_revision: int
    preferences: dict[str, Any] | None


class Changed(BaseModel):
    """A change that is decided."""

    user_id: str
    revision: int | None = None


class Pending(BaseModel):
    """A command without a verdict yet; `Location` says where to ask."""

    state: Literal["pending"]
    command: str


class NotificationReads(AppliedSource, Protocol):
    """What is asked; `sinks.notifications.reader.NotificationsReader` answers."""

    async def notification(self, id_: str) -> reader.Notification | None:
        """One notification; None where there is none."""
        ...

    async def listed(self, user_id: str) -> Sequence[reader.Listed]:
        """A recipient's notifications, newest first."""
        ...

    async def recipient(self, user_id: str) -> reader.Recipient:
        """A recipient, also one that nothing is known of."""
        ...


ReadsDep = Annotated[
    NotificationReads, Depends(fresh("notifications", events.EVENTS, events.OUTCOMES))
]

router = APIRouter(prefix="/v1", tags=["notifications"], route_class=JsonRoute)
_READ: dict[str, Any] = {
    "dependencies": [requires(READ)],
    "responses": {**responses(404, 504), 200: {"headers": ingest.APPLIED_HEADER}},
}
_WRITE: dict[str, Any] = {
    "dependencies": [requires(WRITE)],
    "response_model": Changed,
    "responses": {
        **responses(400, 404, 413, 415),
        200: {"headers": ingest.POSITION_HEADER},
        202: {"model": Pending, "headers": ingest.POSITION_HEADER},
    },
}


@router.get("/notifications/{notification_id}", response_model=Timeline, **_READ)
async def notification(notification_id: Id, source: ReadsDep) -> reader.Notification:
    """What became of a notification: its timeline and deliveries."""
    found = await source.notification(notification_id)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-notification", "there is no such notification")
    return found


@router.get("/users/{user_id}/notifications", **_READ)
async def listed(
    user_id: Id,
    source: ReadsDep,
    cursor: Annotated[str | None, Query(pattern=r"^\d{1,15}:.{1,128}$")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
) -> Page:
    """A recipient's notifications, newest first. New ones do not shift later pages."""
    rows = list(await source.listed(user_id))
    if cursor is not None:
        at, _, id_ = cursor.partition(":")
        rows = [row for row in rows if (row.at_ms, row.id) < (int(at), id_)]
    page, more = rows[:limit], len(rows) > limit
    return Page(
        items=[Listed(**vars(row)) for row in page],
        next=f"{page[-1].at_ms}:{page[-1].id}" if more else None,
    )


@router.get("/users/{user_id}/notification-settings", response_model=Recipient, **_READ)
async def recipient(user_id: Id, source: ReadsDep) -> reader.Recipient:
    """Addresses and preferences of a recipient."""
    return await source.recipient(user_id)


@router.put("/users/{user_id}/notification-preferences", **_WRITE)
async def set_preferences(
    user_id: Id, wanted: inputs.Preferences, asked: AskedDep, services: ServicesDep
) -> Response:
    """Replace a recipient's preferences; they hold from the next decision on."""
    return await ask(
        services,
        asked,
        events.COMMANDS,
        events.SET_PREFERENCES.name,
        wanted.command(user_id),
    )


@router.put("/users/{user_id}/notification-contact", **_WRITE)
async def set_contact(
    user_id: Id, wanted: inputs.Contact, asked: AskedDep, services: ServicesDep
) -> Response:
    """Replace a recipient's mail address and phone number."""
    row = events.SetContact(user_id, wanted.email or "", wanted.phone or "")
    return await ask(services, asked, events.COMMANDS, events.SET_CONTACT.name, row)


@router.put("/users/{user_id}/devices/{token}", **_WRITE)
async def register_device(
    user_id: Id,
    token: inputs.Token,
    wanted: inputs.Device,
    asked: AskedDep,
    services: ServicesDep,
) -> Response:
    """Register a device that can be pushed to."""
    row = events.RegisterDevice(user_id, token, wanted.platform)
    return await ask(services, asked, events.COMMANDS, events.REGISTER_DEVICE.name, row)


@router.delete("/users/{user_id}/devices/{token}", **_WRITE)
async def remove_device(
    user_id: Id, token: inputs.Token, asked: AskedDep, services: ServicesDep
) -> Response:
    """Remove a device. 404 where there is no such device."""
    row = events.RemoveDevice(user_id, token, "unregistered")
    return await ask(services, asked, events.COMMANDS, events.REMOVE_DEVICE.name, row)
