"""`bench api`: reads of the read API, Redis- and ClickHouse-backed, idle and beside a rebuild.

Closed loop, for the most reads a second; open loop at a given rate, for the latency. The rebuild
folds another million records into the same store, again and again while the load lasts, as
`headrace rebuild` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from api.auth import READ, WRITE
from infra.local.home import CHECKOUT
from schemas.ads.events import EVENTS
from schemas.apply import apply
from schemas.leaderboard.events import SCORES
from streams.runtime.settings import Settings
from tests.bench import http, report, traffic
from tests.bench.http import Client, Taken
from tests.bench.measure import python
from tests.bench.serving import Servers, metered, servers, settings_of_api, token
from tests.bench.store import drop_read_model, drop_topics

AGENTS = ("leaderboard", "ads-windows", "ads-events")
REBUILT = 1_000_000
PLAYERS, CAMPAIGNS = 10_000, 50
BATCH = 1_000
SECONDS = 5.0
WARM_UP_S = 1.0
CONNECTIONS = 16
OK, ACCEPTED = 200, 202
BOARD = "bench-api"
VARIANTS = 512
DAY_MS = 24 * 3_600_000


NOTES = (
    "A campaign's minutes are 25 hours of all log partitions, a hundred hashes of Redis in one "
    "round trip: bound by the API process, 2.0 ms of it a read (4.7 before names and rows of all "
    "hashes were made as one frame each).",
    "A campaign's adjustments are two or three queries of ClickHouse: the position, whether "
    "anything came late (mostly not: 6 ms), and only then the sums (20 to 30 ms), which were asked "
    "for always before. Bound by ClickHouse, on the same two cores.",
    "Load generator, stores, broker, worker, API and rebuild share the machine; the milliseconds "
    "in these notes were taken on a busy one.",
)


@dataclass(frozen=True)
class Route:
    """What is read, the store behind it, the read model that is rebuilt beside, and the open loop's
    reads a second: well below the most, so that it measures latency and not a growing queue.
    """

    title: str
    store: str
    model: str
    paced_per_s: int
    path: Callable[[int], str]


def _day() -> str:
    now_ms = int(time.time() * 1_000)
    return f"from={now_ms - DAY_MS + 60_000}&to={now_ms + 60_000}"


ROUTES = (
    Route(
        "a player's rank",
        "Redis",
        "leaderboard",
        200,
        lambda n: f"/v1/leaderboards/{BOARD}/rank/bench-{n % PLAYERS}",
    ),
    Route(
        "a campaign's minutes",
        "Redis",
        "ads-windows",
        50,
        lambda n: f"/v1/ads/campaigns/bench-{n % CAMPAIGNS}/minutes?{_day()}",
    ),
    Route(
        "a campaign's adjustments",
        "ClickHouse",
        "ads-events",
        5,
        lambda n: f"/v1/ads/campaigns/bench-{n % CAMPAIGNS}/adjustments?{_day()}",
    ),
)


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the size of
    the rebuilds; the loads shrink with it.
    """
    settings, records = Settings.read(), records or REBUILT
    seconds = min(SECONDS, SECONDS * records / REBUILT)
    apply(settings, [SCORES, EVENTS])
    for route in ROUTES:
        traffic.ensure(settings, route.model, records)
    try:
        with servers(settings, AGENTS) as running:
            taken = asyncio.run(_all(settings, running, runs, seconds, records))
    finally:
        doubles = [traffic.double(route.model, records) for route in ROUTES]
        drop_topics(settings, {one.topic.name: one.topic for one in doubles}.values())
        for one in doubles:
            if one.store == "redis":
                drop_read_model(settings, one.name)
    reads = [
        {
            **{"title": route.title, "store": route.store, "rebuild": rebuild or None},
            "most": http.figures(each["most"]),
            "paced_per_s": route.paced_per_s,
            "paced": http.figures(each["paced"]),
        }
        for (route, rebuild), each in taken.items()
    ]
    result = {
        "api": settings_of_api(),
        "clients": CONNECTIONS,
        "rebuilt_records": records,
        "reads": reads,
        "notes": NOTES,
    }
    _print(reads)
    report.save("api", result)
    return result


Measured = dict[tuple[Route, str], dict[str, list[Taken]]]


async def _all(
    settings: Settings, running: Servers, runs: int, seconds: float, records: int
) -> Measured:
    taken: Measured = {
        (route, model): {"most": [], "paced": []} for route in ROUTES for model in ("", route.model)
    }
    async with Client(running.base, token(settings, READ, WRITE)) as client:
        await _seed(client)
        for _ in range(runs):
            for (route, model), each in taken.items():
                requests = [client.request("GET", route.path(n)) for n in range(VARIANTS)]
                async with _rebuilding(model, records):
                    await _most(client, requests, WARM_UP_S)
                    each["most"].append(await metered(running, _most(client, requests, seconds)))
                    paced = _paced(client, route.paced_per_s, requests, seconds)
                    each["paced"].append(await metered(running, paced))
    return taken


async def _most(client: Client, requests: list[bytes], seconds: float) -> Taken:
    return await http.closed_loop(
        client, CONNECTIONS, seconds, lambda n: requests[n % VARIANTS], OK
    )


async def _paced(client: Client, per_s: int, requests: list[bytes], seconds: float) -> Taken:
    return await http.open_loop(client, per_s, seconds, lambda n: requests[n % VARIANTS], OK)


async def _seed(client: Client) -> None:
    """Something to read; returns when it is readable."""
    now_ms = int(time.time() * 1_000)
    scores = [
        {
            **{"type": "ScoreSubmitted", "board": BOARD, "operator": "SUM"},
            **{"player_id": f"bench-{n}", "points": n, "event_time": now_ms},
        }
        for n in range(PLAYERS)
    ]
    seen = [
        {
            **{
                "type": "AdImpressed",
                "user_id": f"bench-{n}",
                "campaign_id": f"bench-{n % CAMPAIGNS}",
            },
            **{"ad_id": f"bench-{n % CAMPAIGNS}", "event_time": now_ms, "country": "NL"},
        }
        for n in range(PLAYERS)
    ]
    for path, events in (("leaderboard", scores), ("ads", seen)):
        position = ""
        for at in range(0, PLAYERS, BATCH):
            body = msgspec.json.encode({"events": events[at : at + BATCH]})
            status, head, _ = await client.ask(
                client.request("POST", f"/v1/{path}/events:batch", body)
            )
            if status != ACCEPTED:
                raise RuntimeError(f"the events are refused: {status}")
            position = head.split(b"headrace-position: ")[1].split(b"\r\n")[0].decode()
        for route in ROUTES:
            if route.path(0).startswith(f"/v1/{path}"):
                await _readable(client, route, position)


async def _readable(client: Client, route: Route, position: str) -> None:
    headers = {"Headrace-After": position, "Prefer": "wait=10"}
    for _ in range(6):
        status, _, body = await client.ask(client.request("GET", route.path(0), headers=headers))
        if status == OK:
            return
    raise RuntimeError(f"{route.title} cannot be read: {status} {body!r:.300}")


def _again_and_again(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", 'while "$@"; do :; done', "rebuild", *command],
        cwd=CHECKOUT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@contextlib.asynccontextmanager
async def _rebuilding(model: str, records: int) -> AsyncIterator[None]:
    """A rebuild of that read model after the other while the block lasts; "": none."""
    if not model:
        yield
        return
    process = await asyncio.to_thread(_again_and_again, python("rebuild", model, records))
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError(f"the rebuild of {model} ended with {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.to_thread(process.wait)


def _print(reads: list[dict[str, Any]]) -> None:
    rows = []
    for one in reads:
        most, paced = one["most"], one["paced"]
        rows.append(
            (
                f"{one['title']} ({one['store']})",
                *("yes" if one["rebuild"] else "no", most["per_s"], most["ms"]["p99"]),
                *(
                    one["paced_per_s"],
                    paced["ms"]["p50"],
                    paced["ms"]["p99"],
                    most["refused"] + paced["refused"],
                ),
            )
        )
    columns = ("read", "rebuild", "reads/s", "p99 ms", "paced/s", "p50 ms", "p99 ms", "refused")
    report.table(f"{CONNECTIONS} clients, then an open loop", columns, rows)
