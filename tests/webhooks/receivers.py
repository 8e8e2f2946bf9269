"""Receivers for tests: a real HTTP server that remembers what it got and can misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass
class Received:
    """One request as it came."""

    id: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers `status`; with `hang` it answers nothing until it is released."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    answer: bytes = b""
    got: list[Received] = field(default_factory=list)
    hang: asyncio.Event | None = None
    url: str = ""
    decide: Callable[[Received], int] | None = None

    @property
    def ids(self) -> list[str]:
        """webhook-ids in the order they came, repeats included."""
        return [one.id for one in self.got]

    async def handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        one = Received(headers.get("webhook-id", ""), headers, body)
        self.got.append(one)
        if self.hang is not None:
            await self.hang.wait()
        status = self.decide(one) if self.decide else self.status
        return web.Response(status=status, headers=self.headers, body=self.answer)


@asynccontextmanager
async def receivers(*those: Receiver) -> AsyncIterator[None]:
    """The receivers, each listening on a port of its own."""
    runners = []
    for one in those:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", one.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        runners.append(runner)
        one.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hook"
    try:
        yield
    finally:
        for one in those:
            if one.hang is not None:
                one.hang.set()
        for runner in runners:
            await runner.cleanup()
