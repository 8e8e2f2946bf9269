"""Dependencies of read routes."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from api.problem import Problem
from api.services import ServicesDep


def reader(system: str) -> Callable[[ServicesDep], Any]:
    """A dependency that gives the reader of a system, or answers 503 where none is configured."""

    def found(services: ServicesDep) -> Any:
        try:
            return services.readers[system]
        except KeyError:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "no-read-model",
                f"this server has no read model of {system}",
                headers={"Retry-After": "60"},
            ) from None

    return found
