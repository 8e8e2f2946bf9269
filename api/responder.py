"""The outermost middleware: every request gets an id, an answer, a log line and a place in the
metrics, whatever happens further in.
"""

from __future__ import annotations

import re
import time
from http import HTTPStatus
from typing import Any

import structlog
import uuid_utils
from prometheus_client import Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.limits import ClientGone
from api.problem import as_problem

REQUEST_ID = "X-Request-ID"
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
CLIENT_GONE = 499
"""Logged status of a request whose client hung up before it was complete (nginx's number)."""
SOCKET_REFUSED, SOCKET_FAILED = 1008, 1011
"""Close codes of RFC 6455; before a socket is accepted any of them is answered as 403."""
_ID = re.compile(r"[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}", re.ASCII)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})

log = structlog.get_logger("api.access")


class Responder:
    """Turns exceptions into problem documents and writes the access log, without tokens, bodies
    or query strings.
    """

    def __init__(self, app: ASGIApp, durations: Histogram) -> None:
        self._app = app
        self._durations = durations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Starlette hands the lifespan's state to each request; keep it, add ours.
        scope["state"] = {**scope.get("state", {}), "request_id": _request_id(scope)}
        started = time.perf_counter()
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = scope["state"]["request_id"]
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except ClientGone:
            status = CLIENT_GONE
        except Exception as error:
            problem = as_problem(error)
            if problem.status_code == HTTPStatus.INTERNAL_SERVER_ERROR:
                log.exception("request failed", request_id=scope["state"]["request_id"])
            if status:  # the answer has begun: it can only be cut off
                raise
            response = problem.response(scope["state"]["request_id"])
            await response(scope, receive, answer)
        finally:
            self._record(scope, status, time.perf_counter() - started)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A socket: refused with its close code before it is accepted, ended with 1011 after."""
        scope["state"] = {**scope.get("state", {}), "request_id": _request_id(scope)}
        started = time.perf_counter()
        status = HTTPStatus.SWITCHING_PROTOCOLS.value
        accepted = False

        async def answer(message: Message) -> None:
            nonlocal accepted
            accepted |= message["type"] == "websocket.accept"
            await send(message)

        try:
            await self._app(scope, receive, answer)
        except Exception as error:
            status = as_problem(error).status_code
            if status == HTTPStatus.INTERNAL_SERVER_ERROR:
                log.exception("socket failed", request_id=scope["state"]["request_id"])
            code = SOCKET_FAILED if accepted else SOCKET_REFUSED
            await send({"type": "websocket.close", "code": code})
        finally:
            _log(scope, status, time.perf_counter() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        self._durations.labels(route_of(scope), method_of(scope), str(status)).observe(seconds)
        _log(scope, status, seconds)


def _log(scope: Scope, status: int, seconds: float) -> None:
    principal = scope["state"].get("principal")
    log.info(
        "request",
        request_id=scope["state"]["request_id"],
        method=method_of(scope),
        path=scope["path"][:256],
        route=route_of(scope),
        status=status,
        duration_ms=round(seconds * 1_000, 3),
        subject=None if principal is None else principal.subject,
        client=(scope.get("client") or (None,))[0],
    )


def method_of(scope: Scope) -> str:
    """That of a socket is the one it began with."""
    method = scope.get("method", "GET")
    return method if method in _METHODS else "other"


def _request_id(scope: Scope) -> str:
    """The client's id where it is a UUID (so that it cannot forge log lines), else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id":
            text = value.decode("latin-1")
            if _ID.fullmatch(text):
                return str(text)
    return str(uuid_utils.uuid7())


def route_of(scope: Scope) -> str:
    """The route's template, or "none"; known once the request is answered."""
    route: Any = scope.get("route")
    return getattr(route, "path", "none")
