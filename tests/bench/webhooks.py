"""`bench webhooks`: deliveries a second, and what a dead endpoint costs the healthy ones.

Messages of about 1 kB are appended as commands; decider, fan-out, reactor and read model run in one
worker process, the receivers (HTTP servers of four healthy endpoints) in this one.

- Deliveries: as many messages as go through, 400 at most on their way; from the first call to the
  last. Each is decided, derived, signed and posted, and what came of it is decided and stored, too.
- Isolation: messages at a rate far below that, each with its due time; milliseconds from due until
  a healthy endpoint has it. Then the same while an endpoint of the same tenant, and three of
  another tenant that gets as many messages, take calls and never answer. The figure is how far
  the 99th percentile moves.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from connectors.encode import Encoder
from connectors.producer import LogProducer
from connectors.webhooks import new_secret
from schemas.registry import schema_ids
from schemas.webhooks.events import COMMANDS, DeleteEndpoint, PublishMessage, SaveEndpoint
from streams import catalog
from streams.runtime.settings import Settings
from tests import stack
from tests.bench import report
from tests.webhooks.receivers import Received, Receiver, receivers

MESSAGES, HEALTHY = 4_000, 4
PART, OUT_MAX = 100, 400
"""Messages that are published at once, and that may be on their way: what a reactor has waiting in
memory is bounded, and the rest comes back after seconds.
"""
PER_S, SECONDS, WARM_UP_S = 25, 20.0, 3.0
"""Messages a second and tenant of the isolation runs; every one goes to all its endpoints."""
FILL = "x" * 1_000
PATIENCE_S = 240.0
PERCENTILES = (50, 90, 99)
AGENTS = [one.name for one in catalog.agents(catalog.load("webhooks"))]


class Arrivals(Receiver):
    """A healthy receiver that remembers when each message came first."""

    def __init__(self) -> None:
        super().__init__(decide=self._came)
        self.at_s: dict[int, float] = {}

    def _came(self, one: Received) -> int:
        self.got.clear()
        self.at_s.setdefault(json.loads(one.body)["n"], time.perf_counter())
        return 204


@dataclass
class Tenant:
    """A tenant and who hears its messages."""

    log: LogProducer
    healthy: Sequence[Arrivals]
    name: str = field(default_factory=lambda: f"bench{uuid.uuid4().hex[:8]}")
    endpoints: list[str] = field(default_factory=list)

    async def join(self, *hooks: Receiver) -> None:
        """An endpoint a receiver, for all messages from now on."""
        for one in hooks:
            id_ = f"e{len(self.endpoints)}"
            row = SaveEndpoint(self.name, id_, True, one.url, [], False, 0, "bench", new_secret())
            await self.log.send(COMMANDS.name, "SaveEndpoint", row)
            self.endpoints.append(id_)

    async def publish(self, *numbers: int) -> None:
        """Messages of these numbers."""
        rows = [
            (
                "PublishMessage",
                PublishMessage(
                    self.name, uuid.uuid4().hex, "bench", "", f'{{"n":{n},"fill":"{FILL}"}}'
                ),
            )
            for n in numbers
        ]
        await self.log.send_many(COMMANDS.name, rows)

    async def arrived(self, count: int) -> None:
        """Wait until every healthy endpoint has so many messages."""
        until_s = time.monotonic() + PATIENCE_S
        while min(len(one.at_s) for one in self.healthy) < count:
            if time.monotonic() > until_s:
                raise TimeoutError(f"{[len(one.at_s) for one in self.healthy]} of {count} came")
            await asyncio.sleep(0.02)

    async def leave(self) -> None:
        """Delete the endpoints, so that nothing is tried again tomorrow."""
        for id_ in self.endpoints:
            await self.log.send(COMMANDS.name, "DeleteEndpoint", DeleteEndpoint(self.name, id_))


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; `records` is the number of messages of the
    first part. About a minute and a half a run.
    """
    messages = records or MESSAGES
    with tempfile.TemporaryDirectory() as name:
        rates, alone, beside = asyncio.run(_measure(Path(name), runs, messages))
    quiet, dead = _figures(alone), _figures(beside)
    result = {
        "messages": messages,
        "healthy_endpoints": HEALTHY,
        "deliveries_per_s": round(float(np.median(rates))),
        "messages_per_s": PER_S,
        "seconds": SECONDS,
        "alone_ms": quiet,
        "beside_dead_endpoints_ms": dead,
        "p99_moved_ms": round(dead["p99"] - quiet["p99"], 1),
    }
    rows = [
        ("healthy endpoints alone", *(quiet[f"p{p}"] for p in PERCENTILES)),
        ("beside dead ones", *(dead[f"p{p}"] for p in PERCENTILES)),
    ]
    report.console.print(f"{result['deliveries_per_s']:,} deliveries/s")
    report.table("due → at the endpoint, ms", ("", *(f"p{p}" for p in PERCENTILES)), rows)
    report.save("webhooks", result)
    return result


async def _measure(
    folder: Path, runs: int, messages: int
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    rates, alone, beside = [], [], []
    async with _running(folder) as log:
        for _ in range(runs):
            rates.append(await _rate(log, messages))
            alone.append(await _paced(log, dead=False))
            beside.append(await _paced(log, dead=True))
    return rates, alone, beside


@asynccontextmanager
async def _running(folder: Path) -> AsyncIterator[LogProducer]:
    """The worker, and a producer of commands."""
    settings = Settings.read()
    os.environ["HEADRACE_OUTBOUND__ALLOW"] = '["127.0.0.0/8"]'
    with stack.worker(folder, *AGENTS):
        encoder = Encoder(COMMANDS, schema_ids(COMMANDS, settings.registry))
        async with LogProducer.open(settings.kafka, {COMMANDS.name: encoder}) as log:
            yield log


@asynccontextmanager
async def _tenant(log: LogProducer) -> AsyncIterator[Tenant]:
    """A tenant with healthy endpoints that have had their first messages."""
    healthy = [Arrivals() for _ in range(HEALTHY)]
    async with receivers(*healthy):
        tenant = Tenant(log, healthy)
        await tenant.join(*healthy)
        await tenant.publish(*range(-50, 0))
        await tenant.arrived(50)
        for one in healthy:
            one.at_s.clear()
        yield tenant
        await tenant.leave()


async def _rate(log: LogProducer, messages: int) -> float:
    async with _tenant(log) as tenant:
        for first in range(0, messages, PART):
            await tenant.arrived(first - OUT_MAX)
            await tenant.publish(*range(first, min(first + PART, messages)))
        await tenant.arrived(messages)
        times = [at_s for one in tenant.healthy for at_s in one.at_s.values()]
    return len(times) / (max(times) - min(times))


async def _paced(log: LogProducer, *, dead: bool) -> list[float]:
    """Milliseconds of every delivery to a healthy endpoint, after the warm-up."""
    hung = [Receiver(hang=asyncio.Event()) for _ in range(4 if dead else 0)]
    async with _tenant(log) as tenant, receivers(*hung):
        other = Tenant(log, ())
        await tenant.join(*hung[:1])
        await other.join(*hung[1:])
        due: list[float] = []
        start_s = time.perf_counter()
        for n in range(int((WARM_UP_S + SECONDS) * PER_S)):
            due.append(start_s + n / PER_S)
            await asyncio.sleep(max(0.0, due[n] - time.perf_counter()))
            await asyncio.gather(tenant.publish(n), *([other.publish(n)] if dead else []))
        await tenant.arrived(len(due))
        await other.leave()
    first = int(WARM_UP_S * PER_S)
    return [
        (one.at_s[n] - due[n]) * 1_000 for one in tenant.healthy for n in range(first, len(due))
    ]


def _figures(runs: list[list[float]]) -> dict[str, float]:
    """Medians over the runs of each run's exact percentiles."""
    found = [np.percentile(one, PERCENTILES, method="higher") for one in runs]
    medians = np.median(found, axis=0).round(2).tolist()
    return dict(zip((f"p{p}" for p in PERCENTILES), medians, strict=True))
