"""The span of every request, for commands and events to carry on. Only where tracing is on."""

from __future__ import annotations

from http import HTTPStatus

from opentelemetry import trace
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.responder import method_of, route_of
from streams.runtime import tracing


class Traced:
    """A plain ASGI middleware outside all others, so that their log lines are of the trace, too.

    A span is named by method and route template (never the path); `provider` None: where the
    process traces.
    """

    def __init__(self, app: ASGIApp, provider: trace.TracerProvider | None = None) -> None:
        self._app = app
        self._provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = [(name.decode("latin-1"), value) for name, value in scope["headers"]]
        with tracing.request_span(method_of(scope), headers, provider=self._provider) as span:

            async def answer(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _answered(span, scope, message["status"])
                await send(message)

            await self._app(scope, receive, answer)


def _answered(span: trace.Span, scope: Scope, status: int) -> None:
    route = route_of(scope)
    span.update_name(f"{method_of(scope)} {route}")
    span.set_attribute("http.route", route)
    span.set_attribute("http.response.status_code", status)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        span.set_status(trace.StatusCode.ERROR)
