"""The demo of the limiter: a web server's log, limited, tried, and asked for at once.

Every request of a public access log is decided by the real counters, on the log's own clock, and
again by the pure rule that `headrace limiter try` uses; both are compared with a recount in plain
Python that shares no line with them. Then a rule is set through the API, 2,000 requests ask at
once, and the decisions are read back from the log and tried under a stricter rule.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import polars as pl
from rich.console import Console

from api.auth import LIMIT, READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS
from infra.demo import processes
from infra.demo.compare import Check
from infra.demo.scenarios import load
from infra.error import StackError
from infra.limiter import past
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from schemas.limiter.rules import Request, Rule
from sinks.limiter.counters import Ask, Counters
from streams.limiter.replay import tried
from streams.runtime.settings import Settings

LIMIT_UNITS, WINDOW_MS, SLOTS = 15, 10_000, 10
AT_ONCE, ADMITTED = 2_000, 100
TOKEN_TTL_S = 600
PATIENCE_S = 30.0


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Limiter[/]", align="left")
    requests = decided(load("access-log", home.root / "datasets"))
    about = DATASETS["access-log"]
    clients = requests["principal"].n_unique()
    console.print(
        f"{requests.height:,} requests of {clients} clients ({about.title}, {about.licence})"
    )
    settings = Stack(home=home).up(("kafka", "registry", "redis"))
    apply(settings)
    checks = list(_past(console, settings, requests))
    # A machine that is busy with something else must not make the counters count as away.
    os.environ.setdefault("HEADRACE_LIMITER__TIMEOUT_MS", "10000")
    with ExitStack() as running:
        port = processes.free_port(home, settings.api.port)
        url = f"http://{settings.api.host}:{port}"
        running.enter_context(processes.running(home, processes.API, "api", "--port", str(port)))
        processes.wait_for_api(home, url)
        checks += _present(console, home, settings, url)
    return checks


def decided(log: pl.DataFrame) -> pl.DataFrame:
    """Requests of an access log as decisions that admitted all of them; by client host."""
    return log.sort("time", "line").select(
        pl.col("line").cast(pl.String).alias("request_id"),
        pl.col("host").alias("principal"),
        pl.col("host").alias("client"),
        pl.col("method"),
        pl.col("path").alias("route"),
        pl.lit(1, pl.Int64).alias("cost"),
        pl.lit(value=True).alias("admitted"),
        pl.col("time").alias("event_time"),
    )


def recount(requests: pl.DataFrame) -> list[bool]:
    """What a client may do: 15 requests in any 10 s, each forgotten at the end of the second that
    it leaves the window in.
    """
    history: dict[str, list[int]] = {}
    part = WINDOW_MS // SLOTS
    found = []
    times = requests["event_time"].dt.epoch("ms").to_list()
    for who, at in zip(requests["principal"], times, strict=True):
        mine = history.setdefault(who, [])
        recent = [then for then in mine if (then // part + 1) * part + WINDOW_MS > at]
        found.append(len(recent) < LIMIT_UNITS)
        if found[-1]:
            mine.append(at)
    return found


def _past(console: Console, settings: Settings, requests: pl.DataFrame) -> Iterator[Check]:
    rule = Rule(f"demo-{int(time.time())}", "SLIDING_WINDOW", LIMIT_UNITS, WINDOW_MS, slots=SLOTS)
    expected = recount(requests)
    pure = tried(rule, requests)
    console.print(
        f"at most {LIMIT_UNITS} in any {WINDOW_MS // 1_000} s: {pure.refused:,} requests of "
        f"{len(pure.refused_by_key)} clients would have been refused"
    )
    yield Check(
        "limiter try", "requests decided alike", requests.height, _alike(expected, pure.admitted)
    )
    live = asyncio.run(_live(settings, rule, requests))
    yield Check("counters", "requests decided alike", requests.height, _alike(expected, live))


def _alike(one: list[bool], other: list[bool]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=True))


async def _live(settings: Settings, rule: Rule, requests: pl.DataFrame) -> list[bool]:
    """What the counters say, with the log's clock."""
    counters = Counters.connect(settings.redis.url.get_secret_value(), PATIENCE_S)
    found = []
    try:
        times = requests["event_time"].dt.epoch("ms").to_list()
        for who, at in zip(requests["principal"], times, strict=True):
            taken = await counters.take([Ask(rule, rule.key(Request(who)), 1)], at)
            found.append(taken.admitted)
    finally:
        await counters.close()
    return found


def _present(console: Console, home: Home, settings: Settings, url: str) -> list[Check]:
    """A rule through the API, many requests at once, and their decisions tried again."""
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE, LIMIT], TOKEN_TTL_S)
    began = int(time.time() * 1_000) - 1_000
    rule_id = f"demo-{began}"
    statuses = asyncio.run(_at_once(url, token, rule_id))
    admitted = statuses.count(200)
    console.print(f"{AT_ONCE:,} requests at once: {admitted} admitted, {statuses.count(429):,} 429")
    rule = Rule(rule_id, "TOKEN_BUCKET", ADMITTED, 86_400_000)
    stricter = Rule(rule_id, "TOKEN_BUCKET", ADMITTED // 2, 86_400_000)
    rows = _logged(settings, rule_id, began)
    found, half = tried(rule, rows), tried(stricter, rows)
    console.print(
        f"from the log: {len(found.ids):,} decisions; half the limit would have refused "
        f"{half.refused - found.refused} more"
    )
    return [
        Check("API", "admitted at once", ADMITTED, admitted),
        Check("API", "refused at once", AT_ONCE - ADMITTED, statuses.count(429)),
        Check("limiter.decisions", "decisions logged", AT_ONCE, rows.height),
        Check("limiter try", "decisions that the same rule changes", 0, found.changed),
        Check("limiter try", "admitted by half the limit", ADMITTED // 2, sum(half.admitted)),
    ]


async def _at_once(url: str, token: str, rule_id: str) -> list[int]:
    rule = {"algorithm": "TOKEN_BUCKET", "limit": ADMITTED, "windowMs": 86_400_000}
    rule_url = f"/v1/limiter/rules/{rule_id}"
    async with httpx.AsyncClient(
        base_url=url,
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
        limits=httpx.Limits(max_connections=64),
    ) as client:
        sent = await client.put(rule_url, json={**rule, "route": f"/{rule_id}"})
        sent.raise_for_status()
        after = {"Headrace-After": sent.headers["Headrace-Position"], "Prefer": "wait=10"}
        (await client.get(rule_url, headers=after)).raise_for_status()
        asked: Any = {"rules": [rule_id], "key": rule_id}
        answers = await asyncio.gather(
            *(client.post("/v1/limiter/allow", json=asked) for _ in range(AT_ONCE))
        )
        (await client.delete(rule_url)).raise_for_status()
    return [answer.status_code for answer in answers]


def _logged(settings: Settings, rule_id: str, since_ms: int) -> pl.DataFrame:
    """The decisions by the rule, when all of them are in the log. Raises `StackError`."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        rows = past.decisions(settings, since_ms, int(time.time() * 1_000) + 60_000)
        rows = rows.filter(pl.col("principal") == rule_id)
        if rows.height >= AT_ONCE:
            return rows
        time.sleep(0.5)
    raise StackError(f"only {rows.height} of {AT_ONCE} decisions are in the log")
