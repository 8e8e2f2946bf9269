"""Reply latency of commands: from the intended send time of a transfer to its verdict over HTTP.

Open loop. A transfer goes API → command topic → decider → event topic → read back by the decider →
Redis → API; the answer is the ledger's verdict. The load spreads over books of all partitions;
every request has an idempotency key of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from api.auth import LEDGER, READ, WRITE
from schemas.apply import apply
from schemas.payments.events import COMMANDS, EVENTS
from streams.runtime.settings import Settings
from tests.bench import http
from tests.bench.http import Client, Taken
from tests.bench.serving import Servers, metered, servers, token

BOOKS, ACCOUNTS = 16, 4
MADE = 201
WARM_UP_S = 3.0
SECONDS = 10.0
RATES = {1: (100, 300, 1_000), 2: (1_000,)}
"""Commands a second, by how many API processes share the port."""


def measure(settings: Settings, runs: int, commands: int | None) -> list[dict[str, Any]]:
    """The latencies at each rate; `commands` is how many a load may send, 10 seconds' worth by
    default.
    """
    apply(settings, [COMMANDS, EVENTS])
    found = []
    for processes, rates in RATES.items():
        with servers(settings, ["payments"], processes) as running:
            taken = asyncio.run(_all(settings, running, rates, runs, commands))
        found += [
            {"rate": rate, "api_processes": processes, **http.figures(each)}
            for rate, each in taken.items()
        ]
    return found


async def _all(
    settings: Settings, running: Servers, rates: Sequence[int], runs: int, commands: int | None
) -> dict[int, list[Taken]]:
    taken: dict[int, list[Taken]] = {rate: [] for rate in rates}
    async with Client(running.base, token(settings, READ, WRITE, LEDGER)) as client:
        desk = Desk(client, f"bench-{time.time_ns()}")
        await desk.open()
        await http.open_loop(client, rates[-1] / 2, WARM_UP_S, desk.transfer, MADE)
        for _ in range(runs):
            for rate in rates:
                seconds = SECONDS if commands is None else commands / rate
                loop = http.open_loop(client, rate, seconds, desk.transfer, MADE)
                taken[rate].append(await metered(running, loop))
    return taken


class Desk:
    """Makes the requests of one run, on books of its own."""

    def __init__(self, client: Client, run: str) -> None:
        self._client = client
        self._run = run
        self._sent = 0

    async def open(self) -> None:
        """Open the books; each account may owe any amount."""
        for book in range(BOOKS):
            for account in range(ACCOUNTS):
                body = {"account": f"a{account}", "currency": "EUR", "overdraft": None}
                status, *_ = await self._client.ask(
                    self._request(f"{self._run}-{book}/accounts", body)
                )
                if status != MADE:
                    raise RuntimeError(f"the books cannot be opened: {status}")

    def transfer(self, number: int) -> bytes:
        """The request of one transfer."""
        leg = {
            "debit_account": f"a{number % ACCOUNTS}",
            "credit_account": f"a{(number + 1) % ACCOUNTS}",
            "currency": "EUR",
            "amount": 1 + number % 97,
        }
        return self._request(f"{self._run}-{number % BOOKS}/transfers", {"legs": [leg]})

    def _request(self, path: str, body: dict[str, Any]) -> bytes:
        self._sent += 1
        headers = {"Idempotency-Key": f"{self._run}-{self._sent}", "Prefer": "wait=10"}
        return self._client.request("POST", f"/v1/books/{path}", msgspec.json.encode(body), headers)
