"""What the routes need, opened once by the application's lifespan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from api.auth import Verifier
from api.limits import Rate
from connectors.producer import EventProducer

Readiness = Mapping[str, str]
"""Part → "ok" or why it is not."""


async def always_ready() -> Readiness:
    """Readiness of services without outside parts."""
    return {}


@dataclass(frozen=True)
class Services:
    """Everything that routes use. `readers` holds, by system, the object behind its read routes;
    a system without one answers 503 on reads.
    """

    producer: EventProducer
    verifier: Verifier
    readers: Mapping[str, Any] = field(default_factory=dict)
    ready: Callable[[], Awaitable[Readiness]] = always_ready
    info: Mapping[str, Any] = field(default_factory=dict)


def services(request: Request) -> Services:
    """Dependency: the services of this application."""
    return cast("Services", request.app.state.services)


def rate(request: Request) -> Rate:
    """Dependency: the rates of the subjects."""
    return cast("Rate", request.app.state.rate)


ServicesDep = Annotated[Services, Depends(services)]
RateDep = Annotated[Rate, Depends(rate)]
