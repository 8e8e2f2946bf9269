"""Dependencies of read routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Request, Response

from api.positions import APPLIED, After, after, wait_for
from api.problem import Problem
from api.services import ServicesDep
from streams.runtime.topic import Topic

Fresh = Callable[[Request, ServicesDep, Annotated[After, Depends(after)], Response], Awaitable[Any]]


def fresh(system: str, *topics: Topic) -> Fresh:
    """A dependency that gives the reader of a system once its read models have passed what the
    request asks for, and puts `Headrace-Applied` on the answer.

    `topics` are what the read models fold; of a decider's event topic also positions of its
    commands may be waited for. Answers 503 where no reader is configured, and 504
    when the read models do not get there in time.
    """
    decided = tuple(topic.decides for topic in topics if topic.decides is not None)
    names = (*(topic.name for topic in topics), *decided)

    async def found(
        request: Request,
        services: ServicesDep,
        wanted: Annotated[After, Depends(after)],
        response: Response,
    ) -> Any:
        source = services.readers.get(system)
        if source is None:
            raise Problem(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "no-read-model",
                f"this server has no read model of {system}",
                headers={"Retry-After": "60"},
            )
        response.headers[APPLIED] = await wait_for(wanted, source, names, request.app.state.waiting)
        return source

    return found
