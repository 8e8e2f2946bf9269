"""`bench latency`: from the intended send time of a score to the moment a reader can see it.

Open loop: event n is due at `n / rate`, whatever became of those before it, and its clock starts
then, not when the client got round to it. It stops when a read of the player's place, sent with
the write's position in `Headrace-After`, answers. Worker and API run as processes of their own.
At high rates a sample of the writes is read back, so that reads do not become the load.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from statistics import median
from subprocess import DEVNULL, Popen
from typing import Any, Protocol

import aiohttp
import numpy as np
import psutil

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from api.positions import AFTER, POSITION
from infra.local.home import CHECKOUT
from infra.local.ports import free_port
from schemas.apply import apply
from schemas.leaderboard.events import SCORES
from streams.runtime.settings import Settings, home
from tests.bench import report

AGENT = "leaderboard"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
SECONDS = 10.0
WARM_UP_S = 3.0
TOKEN_TTL_S = 3_600
ANSWER_TIMEOUT_S = 15.0
OK = 200
ACCEPTED = 202
NO_ANSWER = 0
PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Load:
    """Events a second, how many a request, and how many requests a second are read back."""

    title: str
    rate: int
    batch: int
    reads_per_s: int = 100

    @property
    def requests_per_s(self) -> float:
        return self.rate / self.batch


LOADS = (
    Load("100/s, one by one", 100, 1),
    Load("2,000/s, in batches of 100", 2_000, 100),
    Load("2,000/s, one by one", 2_000, 1),
)


@dataclass
class Taken:
    """Latencies from the intended time (milliseconds): acknowledged by the log, and readable."""

    written_ms: list[float] = field(default_factory=list)
    visible_ms: list[float] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    cores: dict[str, float] = field(default_factory=dict)
    """Processor seconds a second, of worker and API."""


@dataclass(frozen=True)
class Servers:
    """The processes under test."""

    base: str
    processes: dict[str, psutil.Process]

    def cpu_s(self) -> dict[str, float]:
        """Processor seconds of each so far, children included."""
        return {name: _cpu_s(process) for name, process in self.processes.items()}


def _cpu_s(process: psutil.Process) -> float:
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


@dataclass(frozen=True)
class Client:
    """What sends: a session of the API, and a board of this run alone."""

    http: aiohttp.ClientSession
    base: str
    board: str

    async def one(self, load: Load, number: int, due_s: float, read: bool, taken: Taken) -> None:
        """Write one request's events; read the last one back where asked."""
        try:
            await self._one(load, number, due_s, read, taken)
        except (aiohttp.ClientConnectionError, TimeoutError):
            taken.refused[NO_ANSWER] += 1

    async def _one(self, load: Load, number: int, due_s: float, read: bool, taken: Taken) -> None:
        events = [self._event(number, n) for n in range(load.batch)]
        path, body = (
            ("events", events[0]) if load.batch == 1 else ("events:batch", {"events": events})
        )
        async with self.http.post(f"{self.base}/v1/leaderboard/{path}", json=body) as answer:
            await answer.read()
            position = answer.headers.get(POSITION, "")
        if answer.status != ACCEPTED:
            taken.refused[answer.status] += 1
            return
        taken.written_ms.append((time.perf_counter() - due_s) * 1_000)
        if not read:
            return
        place = f"{self.base}/v1/leaderboards/{self.board}/rank/{events[-1]['player_id']}"
        after = {AFTER: position, "Prefer": "wait=10"}
        async with self.http.get(place, headers=after) as answer:
            await answer.read()
        if answer.status == OK:
            taken.visible_ms.append((time.perf_counter() - due_s) * 1_000)
        else:
            taken.refused[answer.status] += 1

    def _event(self, number: int, n: int) -> dict[str, Any]:
        return {
            "type": "ScoreSubmitted",
            "board": self.board,
            "operator": "SUM",
            "player_id": f"bench-{number}-{n}",
            "points": 1,
            "event_time": int(time.time() * 1_000),
        }


class Sends(Protocol):
    """What a load is made of."""

    async def one(self, load: Load, number: int, due_s: float, read: bool, taken: Taken) -> None:
        """Send one request and note what came of it."""
        ...


async def paced(client: Sends, load: Load, seconds: float) -> Taken:
    """Send for so long, each request when it is due, and wait for all answers."""
    taken = Taken()
    every = max(1, round(load.requests_per_s / load.reads_per_s))
    start = time.perf_counter()
    tasks: set[asyncio.Task[None]] = set()
    for number in range(int(seconds * load.requests_per_s)):
        due = start + number / load.requests_per_s
        if (early := due - time.perf_counter()) > 0:
            await asyncio.sleep(early)
        read = number % every == 0
        task = asyncio.create_task(client.one(load, number, due, read, taken))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    taken.seconds = time.perf_counter() - start
    return taken


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is the number
    of events a load may send, 10 seconds' worth by default.
    """
    settings = Settings.read()
    apply(settings, [SCORES])
    with servers(settings, AGENT) as running:
        measured = asyncio.run(_all(settings, running, runs, records))
    result = {"loads": [figures(load, taken) for load, taken in zip(LOADS, measured, strict=True)]}
    keys = ("p50", "p90", "p99", "p99.9")
    rows = [
        (
            one["title"],
            one["events_per_s"],
            *(one["visible_ms"][key] for key in keys),
            one["refused"],
        )
        for one in result["loads"]
    ]
    columns = ("write → readable, ms", "events/s", *keys, "refused")
    report.table("latency from the intended send time", columns, rows)
    report.save("latency", result)
    return result


async def _all(
    settings: Settings, running: Servers, runs: int, records: int | None
) -> list[list[Taken]]:
    measured: list[list[Taken]] = [[] for _ in LOADS]
    async with _client(settings, running.base) as client:
        await paced(client, LOADS[0], WARM_UP_S)
        for _ in range(runs):
            for load, taken in zip(LOADS, measured, strict=True):
                seconds = SECONDS if records is None else records / load.rate
                before = running.cpu_s()
                one = await paced(client, load, seconds)
                one.cores = {n: (s - before[n]) / one.seconds for n, s in running.cpu_s().items()}
                taken.append(one)
    return measured


@asynccontextmanager
async def _client(settings: Settings, base: str) -> AsyncIterator[Client]:
    issuer = DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("bench", [READ, WRITE], TOKEN_TTL_S)
    headers = {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(limit=0)
    patience = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, timeout=patience
    ) as http:
        yield Client(http, base, f"bench-{time.time_ns()}")


@contextmanager
def servers(settings: Settings, agent: str) -> Iterator[Servers]:
    """A worker with that agent and an API, until the block ends."""
    port, probes = free_port(), free_port()
    DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience).key()
    commands = (
        ["-m", "streams", agent, "--port", str(probes), "--slot", "90"],
        ["-c", "from infra.cli import main; main()", "api", "--port", str(port)],
    )
    quiet = {**os.environ, "HEADRACE_LOG_LEVEL": "ERROR"}
    running = [
        Popen([sys.executable, *one], cwd=CHECKOUT, env=quiet, stdout=DEVNULL) for one in commands
    ]
    try:
        asyncio.run(_until_ready(running, f"http://127.0.0.1:{probes}", f"http://127.0.0.1:{port}"))
        worker, api = (psutil.Process(process.pid) for process in running)
        yield Servers(f"http://127.0.0.1:{port}", {"worker": worker, "api": api})
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(STOP_TIMEOUT_S)


async def _until_ready(running: Sequence[Popen[bytes]], *bases: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    async with aiohttp.ClientSession() as http:
        for base in bases:
            while not await _ready(http, f"{base}/readyz"):
                ended = [process.args for process in running if process.poll() is not None]
                if ended or time.monotonic() > deadline:
                    raise TimeoutError(f"{base} is not ready; ended: {ended}")
                await asyncio.sleep(0.1)


async def _ready(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as answer:
            return answer.status == OK
    except aiohttp.ClientConnectionError:
        return False


def figures(load: Load, runs: list[Taken]) -> dict[str, Any]:
    """Medians over the runs of each run's exact percentiles."""
    sent = [load.batch * len(one.written_ms) / one.seconds for one in runs]
    return {
        "title": load.title,
        "rate": load.rate,
        "events_per_s": round(median(sent)),
        "written_ms": _percentiles([one.written_ms for one in runs]),
        "visible_ms": _percentiles([one.visible_ms for one in runs]),
        "cores": {n: round(median(one.cores[n] for one in runs), 2) for n in runs[0].cores},
        "reads": sum(len(one.visible_ms) for one in runs),
        "refused": sum(one.refused.total() for one in runs),
        "refused_by_status": dict(sum((one.refused for one in runs), Counter())),
    }


def _percentiles(runs: list[list[float]]) -> dict[str, float | None]:
    found = [np.percentile(one, [*PERCENTILES, 100], method="higher") for one in runs if one]
    names = [*(f"p{p}" for p in PERCENTILES), "max"]
    if not found:
        return dict.fromkeys(names)
    return dict(zip(names, np.median(found, axis=0).round(2).tolist(), strict=True))
