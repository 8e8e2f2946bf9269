"""`bench pastes`: pastes made and read over HTTP, and how soon expired ones are provably gone.

Closed loop, a few clients that each wait for their answer. A small paste is in its event, a large
one in the object store before anything is decided. For the last figure, pastes with contents of
their own expire at once: from the time each was to expire, until the log says that its content is
gone from the object store.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from statistics import median
from typing import Any

import msgspec
import numpy as np

from api.auth import READ, WRITE
from schemas.apply import apply
from schemas.pastes.events import COMMANDS, EVENTS
from streams.pastes import SYSTEM
from streams.runtime.settings import Settings
from tests.bench import http, report
from tests.bench.http import Client, Taken
from tests.bench.serving import Servers, metered, servers, settings_of_api, token

AGENTS = [one.name for one in (*SYSTEM.deciders, *SYSTEM.projections, *SYSTEM.reactors)]
SIZES = {"1 kB, in the log": 1_000, "100 kB, an object": 100_000}
CONNECTIONS = 8
SECONDS = 4.0
WARM_UP_S = 1.0
EXPIRING, TTL_S = 200, 3
PATIENCE_S = 90.0
OK, MADE = 200, 201


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. About 30 s a run."""
    settings = Settings.read()
    apply(settings, [COMMANDS, EVENTS])
    seconds = SECONDS if records is None else max(0.2, records / 1_000)
    with servers(settings, AGENTS) as running:
        loads, gone = asyncio.run(_all(settings, running, runs, seconds))
    rows = [{"load": name, **http.figures(each)} for name, each in loads.items()]
    shown = [[r["load"], r["per_s"], r["ms"]["p50"], r["ms"]["p99"]] for r in rows]
    report.table("Pastes over HTTP", ["", "a second", "p50 ms", "p99 ms"], shown)
    percentiles = {
        name: round(median(float(np.percentile(one, q)) for one in gone))
        for name, q in (("p50", 50), ("p99", 99), ("max", 100))
    }
    title = f"{EXPIRING} expired pastes, until provably gone"
    report.table(title, ["", *percentiles], [["ms", *percentiles.values()]])
    result = {
        "connections": CONNECTIONS,
        "runs": runs,
        "settings": settings_of_api(),
        "loads": rows,
        "expired": EXPIRING,
        "gone_after_ms": percentiles,
    }
    report.save("pastes", result)
    return result


async def _all(
    settings: Settings, running: Servers, runs: int, seconds: float
) -> tuple[dict[str, list[Taken]], list[list[int]]]:
    loads: dict[str, list[Taken]] = {}
    gone: list[list[int]] = []
    async with Client(running.base, token(settings, READ, WRITE)) as client:
        desk = Desk(client)
        await desk.delete_all()
        for size in SIZES.values():
            await http.closed_loop(client, CONNECTIONS, WARM_UP_S, desk.makes(size), MADE)
        for _ in range(runs):
            for name, size in SIZES.items():
                made = http.closed_loop(client, CONNECTIONS, seconds, desk.makes(size), MADE)
                loads.setdefault(f"make {name}", []).append(await metered(running, made))
                reads = desk.reads(await desk.one(size))
                read = http.closed_loop(client, CONNECTIONS, seconds, reads, OK)
                loads.setdefault(f"read {name}", []).append(await metered(running, read))
            gone.append(await desk.gone_after_ms())
            await desk.delete_all()
    return loads, gone


class Desk:
    """Makes the requests; every content is its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def makes(self, size: int) -> Callable[[int], bytes]:
        """Requests for pastes of so many bytes."""
        run, filling = uuid.uuid4().hex, "x" * (size - 64)
        return lambda number: self._make(f"{run} {number:>20} {filling}")

    def reads(self, paste: str) -> Callable[[int], bytes]:
        """Reads of one paste, which no cache answers."""
        request = self._client.request("GET", f"/v1/pastes/{paste}/raw")
        return lambda _: request

    async def one(self, size: int) -> str:
        """A paste that can be read."""
        return (await self._made(self.makes(size)(0)))["id"]  # type: ignore[no-any-return]

    async def gone_after_ms(self) -> list[int]:
        """From when each was to expire until the event that its content is gone."""
        run = uuid.uuid4().hex
        free = asyncio.Semaphore(CONNECTIONS)

        async def made(number: int) -> dict[str, Any]:
            async with free:
                return await self._made(self._make(f"{run} {number}", expiresIn=TTL_S))

        pastes = await asyncio.gather(*(made(n) for n in range(EXPIRING)))
        await asyncio.sleep(TTL_S)
        until_s = time.monotonic() + PATIENCE_S
        delays: list[int] = []
        for paste in pastes:
            while (at_ms := await self._purged_ms(paste["id"])) is None:
                if time.monotonic() > until_s:
                    raise TimeoutError(f"{paste['id']} is not purged")
                await asyncio.sleep(0.1)
            delays.append(at_ms - paste["expiresAt"])
        return delays

    async def delete_all(self) -> None:
        """Delete every paste of this client, so that nothing is left in the object store."""
        while True:
            listed = self._client.request("GET", "/v1/pastes/mine?limit=200")
            pastes = msgspec.json.decode((await self._client.ask(listed))[2])["pastes"]
            if not pastes:
                return
            for at in range(0, len(pastes), CONNECTIONS):
                some = pastes[at : at + CONNECTIONS]
                requests = [self._client.request("DELETE", f"/v1/pastes/{p['id']}") for p in some]
                await asyncio.gather(*(self._client.ask(one) for one in requests))

    def _make(self, content: str, **more: Any) -> bytes:
        body = msgspec.json.encode({"content": content, **more})
        return self._client.request("POST", "/v1/pastes", body, {"Prefer": "wait=10"})

    async def _made(self, request: bytes) -> dict[str, Any]:
        status, head, body = await self._client.ask(request)
        if status != MADE:
            raise RuntimeError(f"a paste cannot be made: {status}")
        found: dict[str, Any] = msgspec.json.decode(body)
        (position,) = (
            line.partition(b": ")[2].decode()
            for line in head.split(b"\r\n")
            if line.startswith(b"headrace-position")
        )
        after = {"Headrace-After": position, "Prefer": "wait=10"}
        await self._client.ask(
            self._client.request("GET", f"/v1/pastes/{found['id']}/raw", headers=after)
        )
        return found

    async def _purged_ms(self, paste: str) -> int | None:
        asked = self._client.request("GET", f"/v1/pastes/{paste}/tombstone")
        status, _, body = await self._client.ask(asked)
        told = msgspec.json.decode(body) if status == OK else {}
        return int(told["endedAt"]) if told.get("content") == "purged" else None
