"""`bench links`: redirects of short links, at half of the most that the API process answers.

First a closed loop, for the most redirects a second; then an open loop at half of that, for the
latency. Warm: a hundred links, each looked up about once a second by the process. Cold: links in
turn, so many that each is forgotten again before it is asked for the next time, so every redirect
asks Redis. At once: everybody follows one link in the same moment, known or not; who comes while
it is looked up waits for that one answer. Every redirect is a click that goes to the log; folding
clicks is a worker's work and not part of this.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import msgspec

from api.auth import READ, WRITE
from schemas.apply import apply
from schemas.links.events import CLICKS, COMMANDS, EVENTS
from streams.links import SYSTEM
from streams.runtime.settings import Settings
from tests.bench import http, report
from tests.bench.http import Client, Taken
from tests.bench.serving import Servers, metered, servers, settings_of_api, token

AGENTS = [SYSTEM.deciders[0].name, "links-table", "links-copy"]
LINKS, WARM = 5_000, 100
CONNECTIONS = 16
SECONDS, WARM_UP_S = 4.0, 1.0
TOGETHER, BURSTS = 200, 10
FORGOTTEN_S = 1.2
"""After so long a process asks anew."""
PERSON = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"
FOUND, OK, MADE = 302, 200, 201
NOTES = (
    "Load generator, API, broker and stores share two cores. Where others need them too, requests "
    "wait for the processor and the 99th percentile says so first: at 0.3 cores of others it was 8 "
    "to 60 ms instead of 3 (2,200 redirects a second, warm).",
    "Before links were looked up ahead, those that were first asked for together were asked for "
    "together again each second: 20 to 150 ms for who came then. Before a link was read without "
    "making a frame of it, a cold redirect took 0.9 ms of the API's processor time.",
)


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the number of
    links. About 25 s a run, and 20 s to make the links.
    """
    settings, count = Settings.read(), records or LINKS
    apply(settings, [COMMANDS, EVENTS, CLICKS])
    with servers(settings, AGENTS) as running:
        taken, bursts = asyncio.run(_all(settings, running, runs, count))
    loads = {
        name: {**http.figures(each), "api_cpu_ms": round(_cpu_ms(each), 3)}
        for name, each in taken.items()
    }
    result = {
        "links": count,
        "notes": NOTES,
        "api": settings_of_api(),
        "clients": CONNECTIONS,
        "redirects": loads,
        "together": TOGETHER,
        "at_once": {name: http.percentiles(each) for name, each in bursts.items()},
    }
    _print(result)
    report.save("links", result)
    return result


def _cpu_ms(runs: Sequence[Taken]) -> float:
    """Milliseconds of the API's processor time a redirect."""
    return median(1_000 * one.cores["api"] * one.seconds / max(1, len(one.ms)) for one in runs)


async def _all(settings: Settings, running: Servers, runs: int, count: int) -> Measured:
    taken: dict[str, list[Taken]] = {}
    bursts: dict[str, list[list[float]]] = {}
    async with Client(running.base, token(settings, READ, WRITE)) as client:
        agent = {"User-Agent": PERSON}
        codes = await _made(client, count)
        asked = [client.request("GET", f"/{code}", headers=agent) for code in codes]
        turns = itertools.cycle(asked)
        loads: dict[str, Callable[[int], bytes]] = {
            "warm": lambda n: asked[n % WARM],
            "cold": lambda _: next(turns),
        }
        for _ in range(runs):
            for name, request in loads.items():
                found = taken.setdefault(f"{name}, the most", [])
                await _most(client, request, WARM_UP_S)
                found.append(await metered(running, _most(client, request, SECONDS)))
                half = median(len(one.ms) / one.seconds for one in found) / 2
                load = http.open_loop(client, half, SECONDS, request, FOUND)
                taken.setdefault(f"{name}, half of it", []).append(await metered(running, load))
            for name, wait_s in (("known", 0.0), ("not known", FORGOTTEN_S)):
                for request_of_all in asked[:BURSTS]:
                    await client.ask(request_of_all)
                    await asyncio.sleep(wait_s)
                    bursts.setdefault(name, []).append(await _burst(client, request_of_all))
    return taken, bursts


Measured = tuple[dict[str, list[Taken]], dict[str, list[list[float]]]]


async def _most(client: Client, request: Callable[[int], bytes], seconds: float) -> Taken:
    return await http.closed_loop(client, CONNECTIONS, seconds, request, FOUND)


async def _burst(client: Client, request: bytes) -> list[float]:
    """Milliseconds of each of those who come at once. Raises `RuntimeError` if one is refused."""
    await client.connect(TOGETHER)
    rate = 1e6
    taken = await http.open_loop(client, rate, TOGETHER / rate, lambda _: request, FOUND)
    if taken.refused:
        raise RuntimeError(f"refused: {dict(taken.refused)}")
    return taken.ms


async def _made(client: Client, count: int) -> list[str]:
    """The codes of so many new links, once they can be followed."""
    free = asyncio.Semaphore(CONNECTIONS)

    async def made(number: int) -> str:
        body = msgspec.json.encode({"longUrl": f"https://example.org/bench/{number}"})
        request = client.request("POST", "/v1/urls", body, {"Prefer": "wait=30"})
        async with free:
            status, _, answer = await client.ask(request)
        if status != MADE:
            raise RuntimeError(f"no link is made: {status} {answer!r:.200}")
        code: str = msgspec.json.decode(answer)["code"]
        return code

    codes = await asyncio.gather(*map(made, range(count)))
    for code in codes:
        await _readable(client, client.request("GET", f"/v1/urls/{code}"))
    return codes


async def _readable(client: Client, request: bytes) -> None:
    for _ in range(300):
        if (await client.ask(request))[0] == OK:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("a link does not get into its table")


def _print(result: dict[str, Any]) -> None:
    report.table(
        "Redirects",
        ["", "a second", "p50 ms", "p99 ms", "API CPU ms", "others' cores", "refused"],
        [
            [name, one["per_s"], one["ms"]["p50"], one["ms"]["p99"], one["api_cpu_ms"],
             one["cores"]["others"], one["refused"]]
            for name, one in result["redirects"].items()
        ],
    )  # fmt: skip
    report.table(
        f"{TOGETHER} at once follow a link that is",
        ["", "p50 ms", "p99 ms", "max ms"],
        [[name, ms["p50"], ms["p99"], ms["max"]] for name, ms in result["at_once"].items()],
    )
