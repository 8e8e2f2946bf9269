"""Where the payment provider tells how operations went: signed, in any order, any number of times.

The answer is 204 once the report is on the log; what it means is decided there. A repeat of the
same webhook is known by its id, an old report by the rank of what it says.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from http import HTTPStatus
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Request, Response

from api.problem import Problem, invalid, responses
from api.services import ServicesDep
from connectors.payments import settings
from connectors.payments.psp import report_of, told
from connectors.webhooks import NotSigned, verify
from schemas.payments import events
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import envelope_headers

log = structlog.get_logger()

router = APIRouter(
    prefix="/v1/payment-webhooks",
    tags=["payments"],
    responses=responses(401, 413, 422, 429, 503),
)


async def keys() -> tuple[bytes, ...]:
    """Dependency: the keys of the configured provider, read anew so that a new one counts at
    once.
    """
    try:
        return settings.read().webhook_keys
    except settings.NoProvider:
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            "no-provider",
            "no payment provider is configured here",
            headers={"Retry-After": "60"},
        ) from None


@router.post("", status_code=204)
async def hear(
    request: Request, services: ServicesDep, keys: Annotated[tuple[bytes, ...], Depends(keys)]
) -> Response:
    """Take a report of the provider (Standard Webhooks)."""
    body = await request.body()
    try:
        webhook = verify(keys, request.headers, body, time.time())
    except NotSigned as error:
        raise Problem(HTTPStatus.UNAUTHORIZED, "not-signed", str(error)) from None
    try:
        report = report_of(told(body), "webhook")
    except ValueError:
        raise invalid("the body is no report of an operation") from None
    if report is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    envelope = Envelope(
        correlation_id=str(uuid.uuid4()),
        idempotency_key=f"psp\n{webhook}",
        fingerprint=hashlib.sha256(body).hexdigest()[:32],
        subject="psp",
    )
    await services.producer.send(
        events.COMMANDS.name, events.REPORT_OPERATION.name, report, envelope_headers(envelope)
    )
    return Response(status_code=HTTPStatus.NO_CONTENT)
