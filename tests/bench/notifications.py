"""`bench notifications`: one-time codes, with and without a campaign in the system.

A code's clock starts when it is due (open loop) and stops when the SMS provider has it: API,
decider, lane, reactor and HTTP are in it. The campaign goes to 100,000 recipients by push. Decider
and codes run in one worker process, everything else in another, which has the lowest priority of
the operating system here, as a stand-in for a machine of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import polars as pl

from connectors.bulk import BulkProducer
from connectors.encode import Encoder
from connectors.notifications.simulators.behaviour import Inbox
from connectors.notifications.simulators.http import HttpSimulator
from infra.local.home import CHECKOUT
from infra.local.ports import free_port
from schemas.apply import apply
from schemas.notifications.events import COMMANDS, REGISTER_DEVICE
from schemas.registry import schema_ids
from streams import catalog
from streams.runtime.settings import Settings, home
from tests import stack
from tests.bench import report
from tests.notifications.shop import CODE, NEWS, Shop

RECIPIENTS = 100_000
PART = 1_000
CODES_PER_S = 40
SECONDS = 30.0
WARM_UP_S = 5.0
USERS = 40
PATIENCE_S = 240.0
FAST = ("notifications", "notifications-otp", "notifications-send-otp")
PERCENTILES = (50, 90, 99)


class Arrivals(Inbox):
    """When each message came."""

    def __init__(self) -> None:
        super().__init__()
        self.at_s: dict[str, float] = {}

    def put(self, **message: Any) -> None:
        self.at_s.setdefault(message["id"].partition("/")[0], time.perf_counter())


@dataclass
class Bench:
    """What is running: the shop, the provider of codes, and the log of the push provider."""

    shop: Shop
    codes: Arrivals
    pushed: Path
    users: list[str] = field(default_factory=list)

    async def send_codes(self, seconds: float) -> list[float]:
        """Codes at their rate for so long; milliseconds of each until the provider had it."""
        due: dict[str, float] = {}

        async def send(n: int, at_s: float) -> None:
            user = self.users[n % len(self.users)]
            told = await self.shop.send(user, CODE, {"code": str(n)})
            due[told["id"]] = at_s

        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for n in range(int(seconds * CODES_PER_S)):
                at_s = start + n / CODES_PER_S
                await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
                group.create_task(send(n, at_s))
        until_s = time.monotonic() + PATIENCE_S
        while not due.keys() <= self.codes.at_s.keys():
            if time.monotonic() > until_s:
                raise TimeoutError("codes are missing")
            await asyncio.sleep(0.05)
        return [(self.codes.at_s[id_] - at_s) * 1_000 for id_, at_s in due.items()]

    async def start_campaign(self, recipients: int) -> int:
        """Hand in a campaign, and wait until its first messages are out; returns how many had
        been out before.
        """
        before = self.out()
        name = f"bench-{time.time_ns()}"
        for part, first in enumerate(range(0, recipients, PART)):
            body = {
                "campaignId": name,
                "part": part,
                "type": NEWS,
                "params": {"headline": "bench"},
                "userIds": [_recipient(n) for n in range(first, min(first + PART, recipients))],
            }
            answer = await self.shop.client.post("/v1/notification-campaigns", json=body)
            answer.raise_for_status()
        await self.until_out(before + 1)
        return before

    async def until_out(self, count: int) -> None:
        """Wait until so many pushes are out."""
        until_s = time.monotonic() + PATIENCE_S
        while self.out() < count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{self.out()} of {count} are out")
            await asyncio.sleep(0.5)

    def out(self) -> int:
        """How many pushes the provider took."""
        with self.pushed.open("rb") as lines:
            return sum(1 for _ in lines)


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; `records` is the size of the campaign."""
    settings = Settings.read()
    apply(settings)
    recipients = records or RECIPIENTS
    with tempfile.TemporaryDirectory() as name:
        quiet, busy, rates = asyncio.run(_measure(settings, Path(name), runs, recipients))
    alone, beside = _figures(quiet), _figures(busy)
    result = {
        "recipients": recipients,
        "codes_per_s": CODES_PER_S,
        "seconds": SECONDS,
        "alone_ms": alone,
        "beside_a_campaign_ms": beside,
        "p99_moved_percent": round(100 * (beside["p99"] / alone["p99"] - 1), 1),
        "pushes_per_s_meanwhile": round(median(rates)),
    }
    rows = [
        ("codes alone", *(alone[f"p{p}"] for p in PERCENTILES)),
        (f"beside a campaign of {recipients:,}", *(beside[f"p{p}"] for p in PERCENTILES)),
    ]
    report.table("due → at the provider, ms", ("", *(f"p{p}" for p in PERCENTILES)), rows)
    report.save("notifications", result)
    return result


async def _measure(
    settings: Settings, folder: Path, runs: int, recipients: int
) -> tuple[list[list[float]], list[list[float]], list[float]]:
    quiet, busy, rates = [], [], []
    async with _running(settings, folder, recipients) as running:
        await running.send_codes(WARM_UP_S)
        for left in reversed(range(runs)):
            quiet.append(await running.send_codes(SECONDS))
            before = await running.start_campaign(recipients)
            out, start_s = running.out(), time.perf_counter()
            busy.append(await running.send_codes(SECONDS))
            rates.append((running.out() - out) / (time.perf_counter() - start_s))
            if left:
                await running.until_out(before + recipients)
    return quiet, busy, rates


@asynccontextmanager
async def _running(settings: Settings, folder: Path, recipients: int) -> AsyncIterator[Bench]:
    codes, pushed, port = Arrivals(), folder / "pushed", free_port()
    pushed.touch()
    simulator = HttpSimulator(inbox=codes)
    (folder / "notifications.toml").write_text(
        _PROVIDERS.format(sms=await simulator.start(), push=f"http://127.0.0.1:{port}/messages")
    )
    agents = [one.name for one in catalog.agents(catalog.load("notifications"))]
    slow = [name for name in agents if name not in FAST]
    push = ["-c", "from infra.cli import main; main()", "simulate", "push"]
    with (
        _process([*push, "--port", str(port), "--log", str(pushed)], nice=True),
        _worker(folder / "fast", *FAST),
        _worker(folder / "slow", *slow, nice=True),
    ):
        async with stack.api(folder) as api:
            running = Bench(Shop(api.client), codes, pushed)
            await _fill(settings, running, recipients)
            yield running
    await simulator.stop()


async def _fill(settings: Settings, running: Bench, recipients: int) -> None:
    """Templates, recipients of codes, and a device for everybody else."""
    running.shop.after = await running.shop.publish()
    encoder = Encoder(COMMANDS, schema_ids(COMMANDS, settings.registry))
    users = [_recipient(n) for n in range(recipients)]
    devices = pl.DataFrame({"user_id": users, "token": users, "platform": ["web"] * recipients})
    with BulkProducer(settings.kafka, encoder) as bulk:
        bulk.send(REGISTER_DEVICE.name, devices)
    until_s = time.monotonic() + PATIENCE_S
    while True:  # a command behind all of them, in every partition
        try:
            running.users = [await running.shop.join(f"code-{n}") for n in range(USERS)]
            break
        except AssertionError:
            if time.monotonic() > until_s:
                raise


def _recipient(n: int) -> str:
    return f"bench-{n}"


_PROVIDERS = """
[[provider]]
name = "sms"
channel = "sms"
url = "{sms}"
key = "secret"
rate_per_s = 1000
burst = 1000

[[provider]]
name = "push"
channel = "push"
url = "{push}"
key = "secret"
rate_per_s = 20000
burst = 1000
timeout_ms = 60000
"""


@contextmanager
def _worker(folder: Path, *agents: str, nice: bool = False) -> Iterator[None]:
    """A worker process with its own journals and the bench's providers."""
    folder.mkdir()
    for file in (home() / "stack.json", folder.parent / "notifications.toml"):
        if file.is_file():
            shutil.copy(file, folder)
    probes = free_port()
    command = ["-m", "streams", *agents, "--port", str(probes)]
    with _process(command, nice=nice, HEADRACE_HOME=str(folder), HEADRACE_LOG_LEVEL="ERROR"):
        until_s = time.monotonic() + PATIENCE_S
        while not _ready(f"http://127.0.0.1:{probes}/readyz"):
            if time.monotonic() > until_s:
                raise TimeoutError(f"the worker of {agents[0]} is not ready")
            time.sleep(0.2)
        yield


def _ready(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def _process(command: list[str], *, nice: bool = False, **environment: str) -> Iterator[None]:
    process = subprocess.Popen(
        [*(("nice", "-n", "19") if nice else ()), sys.executable, *command],
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _figures(runs: list[list[float]]) -> dict[str, float]:
    """Medians over the runs of each run's exact percentiles."""
    found = [np.percentile(one, PERCENTILES, method="higher") for one in runs]
    medians = np.median(found, axis=0).round(2).tolist()
    return dict(zip((f"p{p}" for p in PERCENTILES), medians, strict=True))
