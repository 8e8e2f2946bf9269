"""The demo of unique ids: two processes of the API, one of them killed, and not an id twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from infra.demo import processes
from infra.demo.compare import Check
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from streams.runtime.settings import Settings

IDS = 400_000
AT_ONCE = 4
BULK = 10_000
SPREAD = 1_000
"""Every so many-th id is taken apart again."""
PUBLIC = 2_000


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Unique ids[/]", align="left")
    settings = Stack(home=home).up(("kafka", "registry", "redis"))
    apply(settings)
    made: list[str] = []
    workers: list[int] = []
    for life in ("first", "second"):
        with (
            processes.product(home, settings, "ids") as url,
            _client(home, settings, url) as client,
        ):
            for ids, worker in _bulk(client, IDS // 2):
                made += ids
                workers.append(worker)
            console.print(f"{life} life: {len(made):,} ids so far, worker number {workers[-1]}")
            if life == "second":
                return [*_checks(client, made, workers, console)]
    raise AssertionError("there are two lives")


def _client(home: Home, settings: Settings, url: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE], 3_600)
    headers = {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _bulk(client: httpx.Client, count: int) -> Iterator[tuple[list[str], int]]:
    def ask(_: int) -> tuple[list[str], int]:
        answer = client.post("/v1/ids", json={"count": BULK}).raise_for_status().json()
        return answer["ids"], answer["worker"]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(ask, range(count // BULK))


def _checks(
    client: httpx.Client, made: list[str], workers: list[int], console: Console
) -> Iterator[Check]:
    yield Check("ids", "distinct", len(made), len(set(made)))
    apart = [client.get(f"/v1/ids/{one}").raise_for_status().json() for one in made[::SPREAD]]
    wanted = [workers[n * SPREAD // BULK] for n in range(len(apart))]
    wrong = sum(one["worker"] != worker for one, worker in zip(apart, wanted, strict=True))
    yield Check("ids", "taken apart", len(made) // SPREAD, len(apart), wrong)
    console.print("an id:", json.dumps(apart[0], indent=2), highlight=False)
    asked = {"kind": "public", "count": PUBLIC}
    public = client.post("/v1/ids", json=asked).raise_for_status().json()["ids"]
    rising = sum(a < b for a, b in pairwise(public))
    console.print(f"public: {', '.join(public[:4])}; {rising:,} of {PUBLIC:,} rise, half by chance")
    yield Check("ids", "public, distinct", PUBLIC, len(set(public)))
    outside = 0
    for one in apart:
        path = f"/v1/id-workers/{one['worker']}/leases"
        leases = client.get(path).raise_for_status().json()
        outside += not any(own["from_ms"] <= one["time_ms"] < own["until_ms"] for own in leases)
    yield Check("leases", "ids within a lease of their worker", len(apart), len(apart), outside)
