"""Routes that take their body as strict JSON only (`connectors.strict_json`); 415 and 422 else."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from email.message import Message
from http import HTTPStatus
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from api.problem import Problem, invalid
from connectors.strict_json import NotStrict, loads


class StrictRequest(Request):
    """A request whose `json()` is strict."""

    async def json(self) -> Any:
        try:
            return loads(await self.body())
        except NotStrict as error:
            raise invalid(f"the body is refused: {error}") from None


class JsonRoute(APIRoute):
    """A route that takes its body only as strict JSON with the right content type."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def strict(request: Request) -> Response:
            if self.body_field is not None:
                _require_json(request.headers.get("content-type", ""))
            return await handler(StrictRequest(request.scope, request.receive))

        return strict


def _require_json(content_type: str) -> None:
    if content_type == "application/json":  # what nearly all send
        return
    header = Message()
    header["content-type"] = content_type
    charset = header.get_content_charset("utf-8")
    if header.get_content_type() != "application/json" or charset not in {"utf-8", "us-ascii"}:
        raise Problem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            "send application/json in UTF-8",
        )
