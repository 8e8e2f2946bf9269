"""What operators ask: alive, ready, metrics, versions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from api.auth import READ, requires
from api.problem import MEDIA_TYPE, RESPONSES, Problem, responses
from api.services import Readiness, ServicesDep

READY_FOR_S = 1.0
"""An answer of the readiness check stands this long, so that probes cost the broker nothing."""

router = APIRouter(tags=["operations"], responses={500: RESPONSES[500]})


@router.get("/livez")
async def livez() -> dict[str, str]:
    """The process answers."""
    return {"status": "ok"}


@router.get("/readyz", responses={503: {"description": "A part is not ready.", "content": {}}})
async def readyz(services: ServicesDep) -> JSONResponse:
    """Every part that requests need answers."""
    parts = await services.ready()
    ready = all(state == "ok" for state in parts.values())
    status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
    return JSONResponse({"status": "ok" if ready else "not ready", "parts": dict(parts)}, status)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}},
        403: {"description": "Not from this machine.", "content": {MEDIA_TYPE: {}}},
    },
)
async def metrics(request: Request) -> Response:
    """Prometheus metrics, for this machine only."""
    if not (request.app.state.metrics_public or _from_loopback(request)):
        raise Problem(HTTPStatus.FORBIDDEN, "forbidden", "metrics are for this machine only")
    registry: CollectorRegistry = request.app.state.registry
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=content_type)


@router.get("/info", dependencies=[requires(READ)], responses=responses())
async def info(services: ServicesDep) -> dict[str, Any]:
    """Version, systems, topics with the ids of their schemas."""
    return dict(services.info)


def _from_loopback(request: Request) -> bool:
    """Whether the request comes from this machine itself. A proxy on this machine looks like it,
    so a request that was forwarded does not count.
    """
    if set(request.headers) & {"forwarded", "x-forwarded-for", "x-real-ip"}:
        return False
    if request.client is None:
        return False
    try:
        return ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def remembered(
    check: Callable[[], Awaitable[Readiness]], seconds: float = READY_FOR_S
) -> Callable[[], Awaitable[Readiness]]:
    """The check, asked at most once in `seconds` however many ask at the same time."""
    lock = asyncio.Lock()
    last: tuple[float, Readiness] = (float("-inf"), {})

    async def ask() -> Readiness:
        nonlocal last
        async with lock:
            if time.monotonic() - last[0] >= seconds:
                last = (time.monotonic(), await check())
            return last[1]

    return ask
