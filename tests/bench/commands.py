"""`bench commands`: from the intended send time of a transfer to its verdict over HTTP.

Open loop, as `bench latency`. A transfer goes API → command topic → decider → event topic → read
back by the decider → Redis → API; the answer is the ledger's verdict. The load spreads over books
of all partitions; every request has an idempotency key of its own.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass
from typing import Any

import aiohttp

from api.auth import LEDGER, READ, WRITE
from api.issuer import DevIssuer
from schemas.apply import apply
from schemas.payments.events import COMMANDS, EVENTS
from streams.runtime.settings import Settings, home
from tests.bench import report
from tests.bench.latency import (
    ANSWER_TIMEOUT_S,
    NO_ANSWER,
    SECONDS,
    TOKEN_TTL_S,
    WARM_UP_S,
    Load,
    Servers,
    Taken,
    figures,
    paced,
    servers,
)

BOOKS, ACCOUNTS = 16, 4
MADE = 201
LOADS = (
    Load("100 commands/s", 100, 1),
    Load("300 commands/s", 300, 1),
    Load("1,000 commands/s", 1_000, 1),
)


@dataclass(frozen=True)
class Desk:
    """What sends transfers: a session of the API, and books of this run alone."""

    http: aiohttp.ClientSession
    base: str
    run: str

    async def open(self) -> None:
        """Open the books; `world` may owe any amount."""
        for book in range(BOOKS):
            for account in range(ACCOUNTS):
                body = {"account": f"a{account}", "currency": "EUR", "overdraft": None}
                status = await self._post(f"{self.run}-{book}/accounts", body)
                if status != MADE:
                    raise RuntimeError(f"the books cannot be opened: {status}")

    async def one(self, load: Load, number: int, due_s: float, read: bool, taken: Taken) -> None:
        """One transfer; its verdict is noted."""
        leg = {
            "debit_account": f"a{number % ACCOUNTS}",
            "credit_account": f"a{(number + 1) % ACCOUNTS}",
            "currency": "EUR",
            "amount": 1 + number % 97,
        }
        path = f"{self.run}-{number % BOOKS}/transfers"
        try:
            status = await self._post(path, {"legs": [leg]})
        except (aiohttp.ClientConnectionError, TimeoutError):
            status = NO_ANSWER
        if status == MADE:
            taken.written_ms.append((time.perf_counter() - due_s) * 1_000)
        else:
            taken.refused[status] += 1

    async def _post(self, path: str, body: dict[str, Any]) -> int:
        headers = {"Idempotency-Key": uuid.uuid4().hex, "Prefer": "wait=10"}
        url = f"{self.base}/v1/books/{path}"
        async with self.http.post(url, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the number
    of commands a load may send, 10 seconds' worth by default.
    """
    settings = Settings.read()
    apply(settings, [COMMANDS, EVENTS])
    with servers(settings, "payments") as running:
        measured = asyncio.run(_all(settings, running, runs, records))
    loads = [figures(load, taken) for load, taken in zip(LOADS, measured, strict=True)]
    result = {"loads": loads}
    keys = ("p50", "p90", "p99", "p99.9")
    rows = [
        (one["title"], one["events_per_s"], *(one["written_ms"][k] for k in keys), one["refused"])
        for one in loads
    ]
    columns = ("command → verdict, ms", "verdicts/s", *keys, "refused")
    report.table("latency from the intended send time", columns, rows)
    report.save("commands", result)
    return result


async def _all(
    settings: Settings, running: Servers, runs: int, records: int | None
) -> list[list[Taken]]:
    measured: list[list[Taken]] = [[] for _ in LOADS]
    issuer = DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("bench", [READ, WRITE, LEDGER], TOKEN_TTL_S)
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        headers={"Authorization": f"Bearer {token}"},
        timeout=aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S),
    ) as http:
        desk = Desk(http, running.base, f"bench-{time.time_ns()}")
        await desk.open()
        await paced(desk, LOADS[0], WARM_UP_S)
        for _ in range(runs):
            for load, taken in zip(LOADS, measured, strict=True):
                seconds = SECONDS if records is None else records / load.rate
                before = running.cpu_s()
                one = await paced(desk, load, seconds)
                one.cores = {n: (s - before[n]) / one.seconds for n, s in running.cpu_s().items()}
                taken.append(one)
    return measured
