"""Ways in: OTLP/HTTP, Prometheus remote write, and plain lines.

All answer when what was taken is durable in the log, with its place in `Headrace-Position`. A
request sent again is the same lines and samples, and stored once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api import positions
from api.auth import READ, WRITE, Principal, requires
from api.limits import Rate
from api.problem import InputError, Problem, invalid, responses
from api.services import RateDep, Services, ServicesDep
from connectors.telemetry import otlp, remote_write
from connectors.telemetry.encoding import BadEncoding, TooLarge, UnknownEncoding, decoded
from connectors.telemetry.intake import Intake, Taken
from connectors.telemetry.line import Line
from connectors.telemetry.otlp import logs as otlp_logs
from connectors.telemetry.otlp import metrics as otlp_metrics
from connectors.telemetry.parse import Format, Origin
from connectors.telemetry.parse import line as parsed_line
from connectors.telemetry.remote_write import BadMessage
from connectors.telemetry.series import Sample

PREFIX = "/v1/telemetry"
ENCODED = frozenset(
    PREFIX + path
    for path in (
        "/otlp/v1/logs", "/otlp/v1/metrics", "/prometheus/write", "/prometheus/read", "/lines"
    )
)  # fmt: skip
"""Paths whose bodies may be compressed."""
DECODED_BYTES_MAX = 8_000_000
ITEMS_MAX = 20_000
"""Lines, or samples, of one request."""

router = APIRouter(
    prefix=PREFIX, tags=["telemetry"], responses=responses(400, 413, 415, 422, 429, 503)
)

reports = APIRouter(
    prefix=PREFIX, tags=["telemetry"], dependencies=[requires(READ)], responses=responses()
)


async def body_of(request: Request) -> bytes:
    """Dependency: the body, decoded within `DECODED_BYTES_MAX`."""
    encoding = request.headers.get("content-encoding", "identity")
    try:
        return decoded(await request.body(), encoding, DECODED_BYTES_MAX)
    except UnknownEncoding as error:
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-encoding", f"Content-Encoding: {error}"
        ) from None
    except TooLarge as error:
        raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", str(error)) from None
    except BadEncoding as error:
        raise bad(str(error)) from None


async def intake_of(services: ServicesDep) -> Intake:
    """Dependency: rules and limits of this process."""
    found = services.readers.get("telemetry-intake")
    if not isinstance(found, Intake):
        raise Problem(
            HTTPStatus.SERVICE_UNAVAILABLE, "no-intake", "this server takes no logs or metrics"
        )
    return found


@dataclass(frozen=True)
class Door:
    """What a way in needs: who sends, how much they may, and where it goes."""

    services: Services
    rate: Rate
    principal: Principal
    intake: Intake

    async def lines(self, lines: Sequence[Line | None]) -> Taken:
        """Lines to the log, each a unit of the sender's rate."""
        self._pay(len(lines), "lines")
        return await self.intake.lines(self.services.producer, lines)

    async def samples(self, samples: Sequence[Sample]) -> Taken:
        """Samples to the log, each a unit of the sender's rate."""
        self._pay(len(samples), "samples")
        return await self.intake.samples(self.services.producer, samples)

    def _pay(self, count: int, unit: str) -> None:
        if count > ITEMS_MAX:
            raise Problem(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                "too-many-items",
                f"a request may have {ITEMS_MAX} {unit}",
            )
        self.rate.take(self.principal.subject, max(0, count - 1))  # the request itself cost one


async def door_of(
    services: ServicesDep,
    rate: RateDep,
    intake: Annotated[Intake, Depends(intake_of)],
    principal: Annotated[Principal, requires(WRITE)],
) -> Door:
    """Dependency: the door of this sender."""
    return Door(services, rate, principal, intake)


Body = Annotated[bytes, Depends(body_of)]
DoorDep = Annotated[Door, Depends(door_of)]


def bad(detail: str) -> Problem:
    """400: the bytes are not the message they are said to be. Nothing was taken."""
    return Problem(HTTPStatus.BAD_REQUEST, "bad-message", detail)


def _wire(request: Request) -> otlp.Wire:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == otlp.PROTOBUF:
        return "protobuf"
    if kind == otlp.JSON:
        return "json"
    raise Problem(
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        f"send {otlp.PROTOBUF} or {otlp.JSON}",
    )


def _headers(taken: Taken) -> dict[str, str]:
    """The place of what was taken, and how much the rules took away."""
    headers = {positions.POSITION: positions.header(taken.places)} if taken.places else {}
    if taken.dropped:
        headers["Headrace-Dropped"] = str(taken.dropped.total())
    return headers


def _otlp(kind: Literal["logs", "metrics"], wire: otlp.Wire, taken: Taken) -> Response:
    reason = otlp_metrics.reasons(taken.refused)
    return Response(
        otlp.answer(kind, wire, taken.refused.total(), reason),
        media_type=otlp.PROTOBUF if wire == "protobuf" else otlp.JSON,
        headers=_headers(taken),
    )


def _takes(*media: str) -> Mapping[str, Any]:
    binary = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": dict.fromkeys(media, binary)}}


@router.post(
    "/otlp/v1/logs", response_class=Response, openapi_extra=dict(_takes(otlp.PROTOBUF, otlp.JSON))
)
async def otlp_export_logs(
    request: Request,
    body: Body,
    door: DoorDep,
) -> Response:
    """`ExportLogsServiceRequest`; what is refused is told as a partial success."""
    wire = _wire(request)
    try:
        message = otlp.logs_request(body, wire)
    except BadMessage as error:
        raise bad(str(error)) from None
    taken = await door.lines(list(otlp_logs.lines(message, time.time_ns())))
    return _otlp("logs", wire, taken)


@router.post(
    "/otlp/v1/metrics",
    response_class=Response,
    openapi_extra=dict(_takes(otlp.PROTOBUF, otlp.JSON)),
)
async def otlp_export_metrics(
    request: Request,
    body: Body,
    door: DoorDep,
) -> Response:
    """`ExportMetricsServiceRequest`; what is refused is told as a partial success: deltas,
    exponential histograms, values that are not finite, new series over the limit.
    """
    wire = _wire(request)
    try:
        found = otlp_metrics.decode(otlp.metrics_request(body, wire))
    except BadMessage as error:
        raise bad(str(error)) from None
    taken = await door.samples(found.samples)
    taken.refused.update(found.refused)
    return _otlp("metrics", wire, taken)


@router.post(
    "/prometheus/write",
    status_code=204,
    response_class=Response,
    openapi_extra=dict(_takes(otlp.PROTOBUF)),
)
async def prometheus_write(
    request: Request,
    body: Body,
    door: DoorDep,
) -> Response:
    """Remote write 1.0. Samples that cannot be taken do not keep the others out: those are in the
    log, and the answer is 400 with what was refused, which Prometheus logs and does not repeat.
    """
    if "proto=io.prometheus.write.v2" in request.headers.get("content-type", ""):
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "send remote write 1.0"
        )
    try:
        found = remote_write.decode(body)
    except BadMessage as error:
        raise bad(str(error)) from None
    taken = await door.samples(found.samples)
    # Summaries without observations say NaN all the time; that is no mistake of the sender's.
    del found.refused["not a finite number"]
    taken.refused.update(found.refused)
    if taken.refused:
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            "partly-refused",
            f"taken: {taken.accepted}; refused: {otlp_metrics.reasons(taken.refused)}",
            headers=_headers(taken),
        )
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(taken))


class Account(BaseModel):
    """What became of lines and samples since this process began."""

    accepted: int = Field(description="In the log.")
    dropped: dict[str, int] = Field(description="Taken away, by rule, as wanted.")
    refused: dict[str, int] = Field(description="Not taken, by reason.")


@reports.get("/intake", response_model=Account)
async def intake_account(intake: Annotated[Intake, Depends(intake_of)]) -> Account:
    """What this process took, dropped and refused: which rule saves how much, and which metric
    has more series than are allowed.
    """
    account = intake.account
    return Account(
        accepted=account.accepted, dropped=dict(account.dropped), refused=dict(account.refused)
    )


@dataclass(frozen=True)
class Written:
    """Who wrote plain lines, and how they are read."""

    service: Annotated[str, Query(min_length=1, max_length=200, description="Who wrote them.")]
    instance: Annotated[str, Query(max_length=200)] = ""
    format: Annotated[Format, Query(description="How to read them.")] = "auto"


@router.post(
    "/lines", status_code=204, response_class=Response, openapi_extra=dict(_takes("text/plain"))
)
async def plain_lines(
    body: Body,
    door: DoorDep,
    written: Annotated[Written, Depends()],
) -> Response:
    """Lines of text, one a line, as a service wrote them."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        detail = f"the body is not UTF-8: byte {error.start}"
        raise invalid(detail, InputError(detail=detail, pointer="")) from None
    now_ns = time.time_ns()
    origin = Origin(written.service, written.instance, written.format)
    lines = [parsed_line(one, origin, now_ns) for one in text.splitlines() if one.strip()]
    taken = await door.lines(lines)
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=_headers(taken))
