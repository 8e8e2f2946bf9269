"""The API of pastes, for tests on the real stack."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import httpx

from tests import stack

PATIENCE_S = 60.0
Body = dict[str, Any]


class Shop:
    """The API; reads see all own writes."""

    def __init__(self, api: stack.Api) -> None:
        self.client = api.client
        self._api = api

    async def make(
        self, content: str = "print(1)", key: str | None = None, **more: Any
    ) -> httpx.Response:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex, "Prefer": "wait=10"}
        body = {"content": content, **more}
        until_s = time.monotonic() + PATIENCE_S
        while True:  # no verdict in time: the same request with the same key is the way to go on
            answer = await self.client.post("/v1/pastes", json=body, headers=headers)
            if answer.status_code not in {202, 503} or time.monotonic() > until_s:
                break
        if answer.status_code == 201:
            self._api.written |= stack.offsets(answer.headers["Headrace-Position"])
        return answer

    async def made(self, content: str = "print(1)", **more: Any) -> str:
        answer = await self.make(content, **more)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def read(self, paste: str, form: str = "", **headers: str) -> httpx.Response:
        """A paste, in one of its forms."""
        return await self.get(f"/v1/pastes/{paste}{form}", **headers)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        """GET once the table has passed all own writes."""
        after = ", ".join(f"{place}/{at}" for place, at in self._api.written.items())
        told = {"Headrace-After": after, "Prefer": "wait=10", **headers}
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.client.get(path, headers=told)
            if answer.status_code not in {503, 504} or time.monotonic() > until_s:
                return answer

    async def delete(self, paste: str) -> httpx.Response:
        answer = await self.client.delete(f"/v1/pastes/{paste}", headers={"Prefer": "wait=30"})
        if answer.status_code == 200:
            self._api.written |= stack.offsets(answer.headers["Headrace-Position"])
        return answer

    async def tombstone(self, paste: str, content: str) -> Body:
        """The tombstone, once it says that of the content."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            answer = await self.read(paste, "/tombstone")
            found: Body = answer.json()
            if found.get("content") == content or time.monotonic() > until_s:
                return found
            await asyncio.sleep(0.2)
