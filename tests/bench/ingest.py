"""`bench ingest`: events over HTTP until all in-sync replicas have them (202), one by one and in
batches, beside what librdkafka takes of records that are encoded already.

Closed loop: so many clients that each wait for their answer, for the most events a second. Open
loop: a given rate, for the latency. The API's rate limit of one subject is lifted, or it would be
the figure.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from confluent_kafka import TopicPartition

from api.auth import WRITE
from schemas.apply import apply
from schemas.leaderboard.events import SCORES
from streams.runtime import kafka
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic
from tests.bench import http, report
from tests.bench.http import Client, Taken
from tests.bench.measure import Run, broker_process, python
from tests.bench.serving import Servers, metered, servers, settings_of_api, token
from tests.bench.store import drop_topics
from tests.bench.turns import Contender, WrongTotals, figures, take_turns

RAW_RECORDS = 500_000
SECONDS = 6.0
WARM_UP_S = 2.0
ACCEPTED = 202
PLAYERS = 10_000
VARIANTS = 256
"""Different bodies of a load, made before it starts."""


@dataclass(frozen=True)
class Load:
    """`connections` for a closed loop, or requests a second for an open one."""

    title: str
    batch: int
    connections: int = 0
    requests_per_s: float = 0.0


LOADS = (
    Load("single, 1 client", 1, connections=1),
    Load("single, 16 clients", 1, connections=16),
    Load("single, 64 clients", 1, connections=64),
    Load("batches of 100, 8 clients", 100, connections=8),
    Load("batches of 1,000, 4 clients", 1_000, connections=4),
    Load("single, 500/s", 1, requests_per_s=500),
    Load("batches of 100, 5,000/s", 100, requests_per_s=50),
)


NOTES = (
    "Single events are bound by the API process: one request costs it half a millisecond and more, "
    "and each is a request of its own to the broker, since its caller waits. Batches are bound by "
    "checking and encoding events in Python.",
    "Load generator, broker and API share the machine; `cores` says what each took.",
)


def topic() -> Topic:
    """The raw producer's topic: like the leaderboard's."""
    return replace(SCORES, name="bench.ingest")


def score(number: int) -> dict[str, Any]:
    """One score, without its id."""
    return {
        "board": "bench-ingest",
        "operator": "SUM",
        "player_id": f"bench-{number % PLAYERS}",
        "points": number % 100,
        "event_time": int(time.time() * 1_000),
    }


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is how many the
    raw producer sends; the loads over HTTP shrink with it.
    """
    settings, records = Settings.read(), records or RAW_RECORDS
    seconds = min(SECONDS, SECONDS * records / RAW_RECORDS)
    apply(settings, [SCORES, topic()])
    raw = _raw(settings, runs, records)
    before = _held(settings)
    with servers(settings, []) as running:
        taken = asyncio.run(_all(settings, running, runs, seconds))
    loads = [
        {"title": load.title, "batch": load.batch, **http.figures(taken[load], load.batch)}
        for load in LOADS
    ]
    stored, told = _held(settings) - before, sum(one["answers"] * one["batch"] for one in loads)
    if stored < told:
        raise WrongTotals(f"{told} events were acknowledged, the log grew by {stored}")
    drop_topics(settings, [topic()])
    result = {
        "acks": "all",
        "api": settings_of_api(),
        "raw": raw,
        "loads": loads,
        "acknowledged": told,
        "log_grew_by": stored,
        "notes": NOTES,
    }
    _print(result)
    report.save("ingest", result)
    return result


def _raw(settings: Settings, runs: int, records: int) -> dict[str, Any]:
    def check(done: Run) -> None:
        if done.finish.count != records:
            raise WrongTotals(f"{done.finish.count} of {records} were confirmed")

    contender = Contender("produce(), encoded before", python("produce", records), check=check)
    measured = take_turns({"raw": contender}, runs, broker_process(settings))
    return figures(contender.title, measured["raw"])


async def _all(
    settings: Settings, running: Servers, runs: int, seconds: float
) -> dict[Load, list[Taken]]:
    taken: dict[Load, list[Taken]] = {load: [] for load in LOADS}
    async with Client(running.base, token(settings, WRITE)) as client:
        bodies = {load: _requests(client, load.batch) for load in LOADS}
        await _one(client, LOADS[1], WARM_UP_S, bodies[LOADS[1]])
        for turn in range(runs):
            for load in LOADS:
                one = await metered(running, _one(client, load, seconds, bodies[load]))
                taken[load].append(one)
                rate = load.batch * len(one.ms) / one.seconds
                report.console.print(f"  {turn + 1}/{runs} {load.title:<30}{rate:>10,.0f} events/s")
    return taken


async def _one(client: Client, load: Load, seconds: float, bodies: list[bytes]) -> Taken:
    def request(number: int) -> bytes:
        return bodies[number % VARIANTS]

    if load.connections:
        return await http.closed_loop(client, load.connections, seconds, request, ACCEPTED)
    return await http.open_loop(client, load.requests_per_s, seconds, request, ACCEPTED)


def _requests(client: Client, batch: int) -> list[bytes]:
    """Ready to send, so that making them is no load; the API gives the events their ids."""
    events = [{"type": "ScoreSubmitted", **score(n)} for n in range(VARIANTS + batch)]
    if batch == 1:
        bodies = [("events", msgspec.json.encode(event)) for event in events[:VARIANTS]]
    else:
        encode = msgspec.json.encode
        bodies = [
            ("events:batch", encode({"events": events[n : n + batch]})) for n in range(VARIANTS)
        ]
    return [client.request("POST", f"/v1/leaderboard/{path}", body) for path, body in bodies]


def _held(settings: Settings) -> int:
    consumer = kafka.consumer(settings.kafka, "bench-look")
    places = [TopicPartition(SCORES.name, partition) for partition in range(SCORES.partitions)]
    held = sum(consumer.get_watermark_offsets(place, timeout=10.0)[1] for place in places)
    consumer.close()
    return int(held)


def _print(result: dict[str, Any]) -> None:
    raw = result["raw"]
    rows: list[tuple[object, ...]] = [
        (
            one["title"],
            *(one["per_s"], one["ms"]["p50"], one["ms"]["p99"], one["refused"]),
            *(one["cores"].get("api"), one["cores"].get("load generator")),
        )
        for one in result["loads"]
    ]
    rows.append((raw["title"], raw["events_per_s"], None, None, None, None, None))
    columns = ("to acks=all", "events/s", "p50 ms", "p99 ms", "refused", "API cores", "generator")
    report.table("events over HTTP until the log has them", columns, rows)
