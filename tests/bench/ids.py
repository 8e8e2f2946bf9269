"""`bench ids`: ids a second, in one process and over HTTP.

In one process with a lease (the rules of the lease run in memory: between renewals the log is not
asked): a million at once, one by one, and written as JSON shows them. A worker number has 4,096
ids a millisecond, so nobody makes more than 4.1 million a second; where they are used up, the maker
waits. Numbers come from ranges of a thousand, also one by one. Over HTTP a few clients each wait
for their answer, of ten thousand ids or of one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import msgspec
import uuid_utils
from ulid import ULID

from api.auth import READ, WRITE
from connectors.ids.issuer import Issuer, Numbers
from schemas.apply import apply
from schemas.ids.events import COMMANDS, EVENTS
from schemas.ids.snowflake import PUBLIC_CHARS
from streams.ids import SYSTEM
from streams.runtime.permutation import Codes
from streams.runtime.settings import Ids as IdSettings
from streams.runtime.settings import Settings
from tests.bench import http, report
from tests.bench.http import Client, Taken
from tests.bench.serving import Servers, metered, servers, settings_of_api, token
from tests.ids.desk import Desk

MADE = 2_000_000
SLOW = 20
"""Of what makes ids one by one, the count is divided by this."""
RANGE = 1_000
CONNECTIONS = 4
SECONDS, WARM_UP_S = 3.0, 0.5
LOADS = {
    "10,000 snowflake ids a request": ("snowflake", 10_000),
    "10,000 public ids a request": ("public", 10_000),
    "one id a request": ("snowflake", 1),
}
CREATED = 201


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. About 15 s a run."""
    settings, count = Settings.read(), records or MADE
    alone: dict[str, list[dict[str, float]]] = {}
    for _ in range(runs):
        for title, one in asyncio.run(_alone(count)).items():
            alone.setdefault(title, []).append(one)
    apply(settings, [COMMANDS, EVENTS])
    with servers(settings, [SYSTEM.deciders[0].name]) as running:
        taken = asyncio.run(_http(settings, running, runs))
    result = {
        "ids_at_once": count,
        "process": {
            title: {key: round(median(one[key] for one in found)) for key in found[0]}
            for title, found in alone.items()
        },
        "api": settings_of_api(),
        "clients": CONNECTIONS,
        "http": {
            title: http.figures(found, per_request=LOADS[title][1])
            for title, found in taken.items()
        },
    }
    _print(result)
    report.save("ids", result)
    return result


async def _alone(count: int) -> dict[str, dict[str, float]]:
    """Ids a second, and ids a second of processor, by what is made."""
    few = max(1, count // SLOW)
    public = Codes("bench", PUBLIC_CHARS, "ids")
    desk = Desk()
    numbers = Numbers(desk, "bench", "bench", RANGE)
    async with Issuer(desk, IdSettings(space="bench")) as issuer:
        await issuer.take(1)

        async def bulk() -> None:
            await issuer.take(count)

        async def texts() -> None:
            made, _ = await issuer.take(count)
            [str(one) for one in made.tolist()]

        async def one_by_one() -> None:
            for _ in range(few):
                await issuer.take(1)

        async def hidden() -> None:
            made, _ = await issuer.take(few)
            [public.code(one) for one in made.tolist()]

        async def ranged() -> None:
            for _ in range(few):
                await numbers.take()

        async def uuids() -> None:
            [str(uuid_utils.uuid7()) for _ in range(few)]

        async def ulids() -> None:
            [str(ULID.from_bytes(uuid_utils.uuid7().bytes)) for _ in range(few)]

        return {
            "snowflake, in bulk": await _timed(count, bulk),
            "snowflake, in bulk, as texts": await _timed(count, texts),
            "snowflake, one by one": await _timed(few, one_by_one),
            "public form": await _timed(few, hidden),
            "numbers of ranges, one by one": await _timed(few, ranged),
            "UUIDv7": await _timed(few, uuids),
            "ULID": await _timed(few, ulids),
        }


async def _timed(count: int, make: Callable[[], Awaitable[None]]) -> dict[str, float]:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await make()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return {"ids_per_s": count / wall_s, "ids_per_cpu_s": count / cpu_s}


async def _http(settings: Settings, running: Servers, runs: int) -> dict[str, list[Taken]]:
    taken: dict[str, list[Taken]] = {title: [] for title in LOADS}
    async with Client(running.base, token(settings, READ, WRITE)) as client:
        requests = {
            title: client.request(
                "POST", "/v1/ids", msgspec.json.encode({"kind": kind, "count": count})
            )
            for title, (kind, count) in LOADS.items()
        }
        await _leased(client, requests["one id a request"])
        for _ in range(runs):
            for title, request in requests.items():
                await _load(client, request, WARM_UP_S)
                taken[title].append(await metered(running, _load(client, request, SECONDS)))
    return taken


async def _load(client: Client, request: bytes, seconds: float) -> Taken:
    return await http.closed_loop(client, CONNECTIONS, seconds, lambda _: request, CREATED)


async def _leased(client: Client, request: bytes) -> None:
    """Wait until a worker number is leased. Raises `RuntimeError` where none is."""
    for _ in range(30):
        status, _, body = await client.ask(request)
        if status == CREATED:
            return
        await asyncio.sleep(0.5)
    raise RuntimeError(f"no ids are made: {status} {body!r:.200}")


def _print(result: dict[str, Any]) -> None:
    report.table(
        "In one process",
        ["", "ids/s", "ids/s of processor"],
        [[title, *one.values()] for title, one in result["process"].items()],
    )
    report.table(
        f"Over HTTP, {CONNECTIONS} clients",
        ["", "ids/s", "requests/s", "p50 ms", "p99 ms", "refused"],
        [
            [title, one["per_s"], one["answers_per_s"], one["ms"]["p50"], one["ms"]["p99"],
             one["refused"]]
            for title, one in result["http"].items()
        ],
    )  # fmt: skip
