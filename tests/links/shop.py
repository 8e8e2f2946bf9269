"""The API of links, for tests on the real stack."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx

from streams.links import SYSTEM
from tests import stack
from tests.links.desk import PERSON

AGENTS = [one.name for one in (*SYSTEM.deciders, *SYSTEM.projections)]
PATIENCE_S = 60.0
Body = dict[str, Any]


class Shop:
    """The API; reads see all own writes."""

    def __init__(self, api: stack.Api) -> None:
        self.client = api.client
        self._api = api

    async def shorten(self, url: str = "https://example.org/a", **more: Any) -> httpx.Response:
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Prefer": "wait=30"}
        body = {"longUrl": url, **more}
        answer = await self.client.post("/v1/urls", json=body, headers=headers)
        if answer.status_code == 201:
            self._api.written |= stack.offsets(answer.headers["Headrace-Position"])
            await self.read(answer.json()["code"])
        return answer

    async def read(self, code: str) -> Body:
        answer = await self._api.read(f"/v1/urls/{code}")
        assert answer.status_code == 200, answer.text
        found: Body = answer.json()
        return found

    async def follow(self, code: str, agent: str = PERSON, **headers: str) -> httpx.Response:
        return await self.client.get(f"/{code}", headers={"User-Agent": agent, **headers})

    async def clicks(self, code: str, by: str, least: int) -> dict[str, int]:
        """Clicks by value, once there are so many."""
        now_ms = int(time.time() * 1_000)
        span = {"from": now_ms - 3_600_000, "to": now_ms + 3_600_000, "by": by}
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.client.get(f"/v1/urls/{code}/clicks", params=span)
            found = {one["value"]: one["clicks"] for one in answer.json()} if answer else {}
            if sum(found.values()) >= least or time.monotonic() > until_s:
                return found
            await asyncio.sleep(0.2)
