"""The pretended provider behind HTTP: operations, look-ups, settlement files, signed webhooks."""

from __future__ import annotations

import asyncio
import time
import uuid
from datetime import UTC, datetime

import aiohttp
import msgspec
from aiohttp import web

from connectors import webhooks
from connectors.payments.psp import Asked, Told
from connectors.payments.settlement_file import render
from connectors.payments.simulator.book import Delivery, Operations

_ASKED = msgspec.json.Decoder(Asked)
HANG_S = 60.0
"""How long a lost request hangs; callers give up before."""


class Simulator:
    """Serves one provider account. `webhook_url` "" sends no webhooks."""

    def __init__(self, operations: Operations, key: str, webhook_url: str, secret: str) -> None:
        self.operations = operations
        self._bearer = f"Bearer {key}"
        self._url = webhook_url
        self._key = webhooks.key_of(secret)
        self._tasks: set[asyncio.Task[None]] = set()

    def app(self) -> web.Application:
        """The HTTP application."""
        app = web.Application()
        app.add_routes(
            [
                web.post("/operations", self._perform),
                web.get("/operations/{reference}", self._look),
                web.get("/settlements/{file_id}", self._settlement),
                web.get("/counts", self._counts),
            ]
        )
        app.on_cleanup.append(self._stop)
        return app

    async def _perform(self, request: web.Request) -> web.StreamResponse:
        self._authorize(request)
        try:
            asked = _ASKED.decode(await request.read())
        except msgspec.MsgspecError as error:
            raise web.HTTPBadRequest(text=str(error)) from None
        if request.headers.get("Idempotency-Key") != asked.reference:
            raise web.HTTPBadRequest(text="the Idempotency-Key is the reference here")
        try:
            answer, deliveries = self.operations.receive(asked, time.time_ns() // 1_000_000)
        except ValueError as error:
            raise web.HTTPUnprocessableEntity(text=str(error)) from None
        for delivery in deliveries:
            self._later(delivery)
        if answer is None:
            await asyncio.sleep(HANG_S)
            raise web.HTTPGatewayTimeout
        return _json(answer)

    async def _look(self, request: web.Request) -> web.StreamResponse:
        self._authorize(request)
        found = self.operations.look(request.match_info["reference"])
        if found is None:
            raise web.HTTPNotFound
        return _json(found)

    async def _settlement(self, request: web.Request) -> web.StreamResponse:
        """`?from=…&to=…` are milliseconds since 1970."""
        self._authorize(request)
        try:
            from_ms, to_ms = (int(request.query[name]) for name in ("from", "to"))
            instants = [datetime.fromtimestamp(ms / 1_000, UTC) for ms in (from_ms, to_ms)]
        except (KeyError, ValueError, OverflowError):
            raise web.HTTPBadRequest(text="from and to are milliseconds since 1970") from None
        file = self.operations.settlement(request.match_info["file_id"], from_ms, to_ms)
        texts = [instant.isoformat().replace("+00:00", "Z") for instant in instants]
        return web.Response(body=render(file, texts), content_type="text/csv")

    async def _counts(self, request: web.Request) -> web.StreamResponse:
        """`?book=…`: what was done for a book, by kind and currency, for who compares."""
        self._authorize(request)
        totals: dict[str, int] = {}
        for asked, told, _ in self.operations.known.values():
            of = asked.payment.partition(".")[0] == request.query.get("book")
            if of and told.status == "succeeded":
                name = f"{asked.kind} {asked.currency}"
                totals[name] = totals.get(name, 0) + told.amount
        return web.json_response(totals)

    def _authorize(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != self._bearer:
            raise web.HTTPUnauthorized

    def _later(self, delivery: Delivery) -> None:
        if not self._url:
            return
        task = asyncio.create_task(self._deliver(f"msg_{uuid.uuid4().hex}", delivery))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, id_: str, delivery: Delivery) -> None:
        await asyncio.sleep(delivery.delay_ms / 1_000)
        body = msgspec.json.encode(delivery.told)
        async with aiohttp.ClientSession() as session:
            for attempt in range(5):
                stamp = int(time.time())
                headers = {
                    "Content-Type": "application/json",
                    "webhook-id": id_,
                    "webhook-timestamp": str(stamp),
                    "webhook-signature": webhooks.sign(self._key, id_, stamp, body),
                }
                try:
                    async with session.post(self._url, data=body, headers=headers) as answer:
                        if answer.ok:
                            return
                except aiohttp.ClientError:
                    pass  # as a provider does: it tries again
                await asyncio.sleep(0.2 * 2**attempt)

    async def _stop(self, _: web.Application) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _json(told: Told) -> web.Response:
    return web.Response(body=msgspec.json.encode(told), content_type="application/json")
