"""A provider of SMS or push over HTTP, with callbacks; misbehaves when told to.

`POST /messages` takes a message, `PUT /behaviour` changes how it behaves, `GET /messages` shows
what it took.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from connectors.notifications.callbacks import sign
from connectors.notifications.simulators.behaviour import Behaviour, Inbox

HANG_S = 3_600.0


@dataclass(frozen=True)
class Callbacks:
    """Where status reports go, and the secret they are signed with."""

    url: str
    secret: str
    token: str = ""


class HttpSimulator:
    """The server. `key` is the bearer key it asks for."""

    def __init__(
        self,
        key: str = "secret",
        inbox: Inbox | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.inbox = inbox or Inbox()
        self.behaviour = Behaviour()
        self.reports: list[int] = []
        """Status codes that the reports were answered with."""
        self._key = key
        self._callbacks = callbacks
        self._telling: set[asyncio.Task[None]] = set()
        self._runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Listen on loopback; returns the URL for messages."""
        app = web.Application()
        app.router.add_post("/messages", self._take)
        app.router.add_get("/messages", self._show)
        app.router.add_put("/behaviour", self._change)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}/messages"

    async def stop(self) -> None:
        """Stop listening, after all reports were made."""
        await asyncio.gather(*self._telling, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self._key}":
            return web.json_response({"error": "unauthorized"}, status=401)
        body = await request.json()
        mode = self.behaviour.mode
        if mode == "down":
            return web.json_response({"error": "internal"}, status=500)
        if mode == "busy":
            wait = {"Retry-After": str(self.behaviour.retry_after_s)}
            return web.json_response({"error": "slow down"}, status=429, headers=wait)
        if mode == "refuse":
            return web.json_response({"error": "malformed"}, status=400)
        if body["to"] in self.behaviour.invalid:
            return web.json_response({"error": "unregistered"}, status=410)
        made = uuid.uuid4().hex
        self.inbox.put(
            id=request.headers["Idempotency-Key"],
            to=body["to"],
            title=body.get("title", ""),
            text=body["text"],
        )
        if mode == "hang":
            await asyncio.sleep(HANG_S)
        if self._callbacks is not None:
            task = asyncio.create_task(self._tell(self._callbacks, body["reference"], made))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)
        return web.json_response({"id": made}, status=202)

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(self.inbox.messages)

    async def _change(self, request: web.Request) -> web.Response:
        self.behaviour.change(await request.json())
        return web.Response(status=204)

    async def _tell(self, to: Callbacks, reference: str, message_id: str) -> None:
        """Report the delivery, as providers do: a few times, until somebody says 2xx."""
        now_s = int(time.time())
        report: dict[str, Any] = {
            "reference": reference,
            "status": "delivered",
            "message_id": message_id,
            "at": now_s * 1_000,
        }
        body = json.dumps(report).encode()
        headers = {
            "webhook-id": message_id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": sign(to.secret, message_id, now_s, body),
            "content-type": "application/json",
        }
        if to.token:
            headers["authorization"] = f"Bearer {to.token}"
        async with aiohttp.ClientSession() as session:
            for pause_s in (0.5, 1.0, 2.0):
                try:
                    async with session.post(to.url, data=body, headers=headers) as answer:
                        self.reports.append(answer.status)
                        if answer.ok:
                            return
                except aiohttp.ClientError:
                    self.reports.append(0)
                await asyncio.sleep(pause_s)
