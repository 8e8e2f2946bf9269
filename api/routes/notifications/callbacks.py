"""Status reports of providers: signed by them, recorded as events.

There is no token on this route: the signature over the body's bytes is the proof.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from api import ingest, positions
from api.problem import Problem, busy, responses
from api.routes.notifications.recipients import NotificationReads
from api.services import Services, ServicesDep
from connectors.notifications.callbacks import BadReport, NotSigned, Report, report, verify
from connectors.notifications.settings import NotificationSettings
from schemas.notifications import events

Clock = Callable[[], float]


@lru_cache(maxsize=1)
def _settings() -> NotificationSettings:
    return NotificationSettings.read()


async def providers() -> NotificationSettings:
    """Dependency: which providers there are, read once."""
    return _settings()


router = APIRouter(prefix="/v1/notification-callbacks", tags=["notifications"])


@router.post(
    "/{provider}",
    status_code=204,
    responses={**responses(400, 401, 413), 204: {"headers": ingest.POSITION_HEADER}},
)
async def told(
    provider: Annotated[str, Path(pattern=r"^[a-z0-9-]{1,64}$")],
    request: Request,
    services: ServicesDep,
    known: Annotated[NotificationSettings, Depends(providers)],
) -> Response:
    """Take a report. A provider sends it again until this answers 2xx; repeats are harmless."""
    body = await request.body()
    try:
        verify(known.secrets(provider), request.headers, body, int(time.time() * 1_000))
        found = report(body)
    except NotSigned as error:
        raise Problem(HTTPStatus.UNAUTHORIZED, "not-signed", str(error)) from None
    except BadReport as error:
        raise Problem(HTTPStatus.BAD_REQUEST, "bad-report", str(error)) from None
    row = _event(provider, found)
    if found.status == "invalid_address" and row.channel == "push":
        await _prune(services, row)
    sent = await services.producer.send(
        events.OUTCOMES.name, events.DELIVERY_REPORTED.name, asdict(row)
    )
    return Response(status_code=204, headers={positions.POSITION: positions.header([sent])})


def _event(provider: str, found: Report) -> events.DeliveryReported:
    """The event. A delivery's id is `<notification>/<channel>`, with the device behind a push."""
    notification_id, _, place = found.reference.rpartition("/")
    return events.DeliveryReported(
        notification_id=notification_id,
        delivery_id=found.reference,
        channel=place.partition("-")[0],
        status=found.status,
        provider=provider,
        provider_message_id=found.message_id[:200],
        detail=found.detail[:500],
        reported_at=found.at,
    )


async def _prune(services: Services, row: events.DeliveryReported) -> None:
    """Take the device from its owner. Before the report, so that a crash in between leaves the
    provider unanswered, and it reports again.
    """
    source: NotificationReads | None = services.readers.get("notifications")
    found = None if source is None else await source.notification(row.notification_id)
    if found is None:
        raise busy("the notification is not in the read model yet", retry_after_s=5)
    tokens = [
        one["address"]
        for step in found.timeline
        for one in step.detail.get("deliveries") or ()
        if one["delivery_id"] == row.delivery_id
    ]
    for token in dict.fromkeys(tokens):
        command = events.RemoveDevice(found.user_id, token, "invalid")
        await services.producer.send(
            events.COMMANDS.name, events.REMOVE_DEVICE.name, asdict(command)
        )
