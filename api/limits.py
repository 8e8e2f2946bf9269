"""What one client may take: headers, body, time to send it, rate, and a share of the server.

The middlewares are plain ASGI and stand in this order, outermost first (`api.app`):

    Responder      request id, log, metrics, security headers; turns errors into answers
    Headers        431
    Authenticate   401, then 429: nothing is read for strangers
    Limit          429 by the rules of `api.limiter`, if there are any
    Receipt        415, 413, 408: the whole body is here, counted and in time, before the next
    Admission      503: only requests that have fully arrived take a place
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from math import ceil

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problem import Problem, busy
from streams.runtime.settings import ApiLimits


class Headers:
    """Refuses a request whose header fields are too large together (431)."""

    def __init__(self, app: ASGIApp, limits: ApiLimits) -> None:
        self._app = app
        self._bytes_max = limits.header_bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"}:
            target = len(scope["path"]) + len(scope["query_string"])
            size = target + sum(len(name) + len(value) for name, value in scope["headers"])
            if size > self._bytes_max:
                raise Problem(
                    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
                    "headers-too-large",
                    f"address and headers have {size} bytes; {self._bytes_max} are allowed",
                )
        await self._app(scope, receive, send)


class ClientGone(Exception):
    """The client hung up before its request was complete; there is nobody to answer."""


class Receipt:
    """Takes in the whole body before the application sees the request.

    The size is counted on what arrives, so a missing or false Content-Length changes nothing.
    Compressed bodies are refused (415), since a few kilobytes of them can be gigabytes, but for
    the paths in `encoded`, whose routes bound what they decode. The paths in `large` have bounds of
    their own; of bodies beyond the common one only a few are taken at a time (503), and each part
    of the common size has the time that a whole body has, so the slowest pace is the same for all.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: ApiLimits,
        encoded: frozenset[str] = frozenset(),
        large: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._encoded = encoded
        self._large = large or {}
        self._large_free = limits.large_at_once
        self._bytes_max = limits.body_bytes_max
        self._deadline_s = limits.receipt_timeout_ms / 1_000

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        encoding = headers.get(b"content-encoding", b"identity").strip().lower()
        if encoding != b"identity" and scope["path"] not in self._encoded:
            raise Problem(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "compressed-body",
                "send the body without Content-Encoding",
                headers={"Accept-Encoding": "identity"},
            )
        bytes_max = self._large.get(scope["path"], self._bytes_max)
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > bytes_max:
            raise _too_large(bytes_max)
        with ExitStack() as held:
            try:
                async with asyncio.timeout(self._deadline_s) as deadline:
                    body = await self._collect(receive, bytes_max, deadline, held)
            except TimeoutError:
                raise Problem(
                    HTTPStatus.REQUEST_TIMEOUT,
                    "request-timeout",
                    f"{self._bytes_max} bytes did not arrive within {self._deadline_s:g} s",
                    headers={"Connection": "close"},
                ) from None
            await self._app(scope, _replay(body, receive), send)

    async def _collect(
        self, receive: Receive, bytes_max: int, deadline: asyncio.Timeout, held: ExitStack
    ) -> bytes:
        """The body. One beyond the common bound takes a place, which `held` gives back."""
        parts, size, bound = [], 0, self._bytes_max
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise _too_large(bytes_max)
            if size > bound:
                if bound == self._bytes_max:
                    held.enter_context(self._place())
                bound += self._bytes_max * ceil((size - bound) / self._bytes_max)
                deadline.reschedule(asyncio.get_running_loop().time() + self._deadline_s)
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._large_free <= 0:
            raise busy("the server has as many large bodies as it can hold")
        self._large_free -= 1
        try:
            yield
        finally:
            self._large_free += 1


def _too_large(bytes_max: int) -> Problem:
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "body-too-large",
        f"a body may have {bytes_max} bytes",
        headers={"Connection": "close"},
    )


def _replay(body: bytes, receive: Receive) -> Receive:
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return first.pop() if first else await receive()

    return replay


class Admission:
    """Bounds the requests that are worked on at once; more are told to come later (503)."""

    def __init__(self, app: ASGIApp, limits: ApiLimits) -> None:
        self._app = app
        self._free = limits.concurrency_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("state", {}).get("exempt"):
            await self._app(scope, receive, send)
            return
        if self._free <= 0:
            raise busy("the server works on as many requests as it can")
        self._free -= 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._free += 1


class Rate:
    """A token bucket per subject, kept as one number each (GCRA, ITU-T I.371).

    `per_s` units a second on average, `burst` at once. Counts are per process. The subjects used
    least recently are forgotten past `subjects_max`, which at worst gives a burst back.
    """

    def __init__(
        self,
        per_s: float,
        burst: int,
        subjects_max: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = 1 / per_s
        self._burst_s = burst / per_s
        self._full_at: OrderedDict[str, float] = OrderedDict()
        self._subjects_max = subjects_max
        self._clock = clock

    def take(self, subject: str, units: int = 1) -> None:
        """Take units or raise the 429 problem, which takes nothing."""
        now = self._clock()
        full_at = max(self._full_at.get(subject, now), now) + units * self._interval_s
        over_s = full_at - now - self._burst_s
        if over_s > 1e-9:
            raise Problem(
                HTTPStatus.TOO_MANY_REQUESTS,
                "rate-limited",
                "this client sends more than it may",
                headers={"Retry-After": str(ceil(over_s))},
            )
        self._full_at[subject] = full_at
        self._full_at.move_to_end(subject)
        if len(self._full_at) > self._subjects_max:
            self._full_at.popitem(last=False)
