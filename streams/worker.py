"""One worker process: any number of agents in one Faust app, with probes and metrics."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import structlog
from faust.web import Request, Response, View
from prometheus_client import generate_latest

from connectors.columnar import FrameEncoder
from connectors.encode import Encoder
from schemas.registry import schema_ids
from sinks.open import open_sink
from streams import catalog
from streams.runtime import metrics
from streams.runtime.avro import RegistrySource
from streams.runtime.decider.filter import BrokenChain
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.service import DeciderWiring, Deciding
from streams.runtime.decider.snapshot_store import open_store
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.service import deriving
from streams.runtime.kafka import UnknownTopic
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.service import LaneApp, MakeAgent, Wiring, build_app, lane
from streams.runtime.native import wanted
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Reactor
from streams.runtime.reactor.service import Reacting, ReactorWiring
from streams.runtime.settings import Settings, home
from streams.runtime.sink import Sink
from streams.runtime.supervisor import EXIT_DECISION, crashed

DECISIONS = (LogMismatch, UnknownTopic, BrokenChain)
"""Errors that a person must decide on; a restart would meet them again."""

log = structlog.get_logger()


def run(
    agents: Sequence[str], *, port: int, slot: int, settings: Settings, restarts: int = 0
) -> int:
    """Run these agents until a signal or a failure; returns the exit status."""
    makers = [maker(*catalog.agent(agent), slot, settings) for agent in agents]
    return asyncio.run(serve(makers, port=port, slot=slot, settings=settings, restarts=restarts))


async def serve(
    makers: Sequence[MakeAgent], *, port: int, slot: int, settings: Settings, restarts: int = 0
) -> int:
    """Run these agents until a signal or a failure; returns the exit status."""
    data = home() / "faust" / str(slot)
    app = await build_app(f"headrace-{slot}", settings.kafka, makers, port, data)
    agents = [one.name for one in app.lanes]
    for one in app.lanes:
        one.metrics.restarted(restarts)
    _pages(app, agents)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, app.end)
    target = announce(port, agents, slot)
    await app.start()
    reader = "native" if wanted(settings.reader) else "python"
    log.info("worker started", agents=list(agents), port=port, pid=os.getpid(), reader=reader)
    error = await app.ended
    await app.stop()
    target.unlink(missing_ok=True)
    if error is None:
        return 0
    log.error("worker ends", error=str(error), kind=type(error).__name__)
    return EXIT_DECISION if isinstance(error, DECISIONS) else 1


def maker(system: System, agent: catalog.AnyAgent, slot: int, settings: Settings) -> MakeAgent:
    """What makes an agent in the app, with real clients."""
    match agent:
        case Projection():
            return lane(agent, wiring(system.name, slot, settings))
        case Decider():
            wired = decider_wiring(system.name, [agent], slot, settings)
            return lambda app: Deciding(app, agent, wired)
        case Reactor():
            reacting = reactor_wiring(system.name, agent, settings)
            return lambda app: Reacting(app, agent, reacting)
        case Derivation():
            encode = FrameEncoder(
                Encoder(agent.target, schema_ids(agent.target, settings.registry))
            ).encode
            return deriving(agent, wiring(system.name, slot, settings), encode)
        case _:
            raise TypeError(f"{agent.name} is a {type(agent).__name__}, which no worker runs")


def decider_wiring(
    system: str, deciders: Sequence[Decider], slot: int, settings: Settings
) -> DeciderWiring:
    """Real clients for the deciders of a system."""
    topics = {one.name: one for d in deciders for one in (d.commands, d.events)}
    return DeciderWiring(
        system=system,
        kafka=settings.kafka,
        schemas=RegistrySource(settings.registry.url),
        schema_ids={n: schema_ids(one, settings.registry) for n, one in topics.items()},
        redis_url=settings.redis.url.get_secret_value(),
        snapshots=open_store(settings.snapshots, settings.s3, home() / "snapshots"),
        metrics=metrics.default(),
        journals=home() / "journals" / str(slot),
        crashed=crashed(os.environ),
        reader=settings.reader,
    )


def reactor_wiring(system: str, reactor: Reactor, settings: Settings) -> ReactorWiring:
    """Real clients for a reactor of a system."""
    outcomes = reactor.outcomes
    return ReactorWiring(
        system=system,
        settings=settings,
        schemas=RegistrySource(settings.registry.url),
        outcome_ids={} if outcomes is None else schema_ids(outcomes, settings.registry),
        metrics=metrics.default(),
    )


def wiring(system: str, slot: int, settings: Settings) -> Wiring:
    """Real clients for the projections of a system."""

    def sink(one: Projection) -> Sink:
        return open_sink(one.store, one.model, settings)

    return Wiring(
        system=system,
        kafka=settings.kafka,
        schemas=RegistrySource(settings.registry.url),
        open_sink=sink,
        metrics=metrics.default(),
        journals=home() / "journals" / str(slot),
        crashed=crashed(os.environ),
        reader=settings.reader,
    )


def announce(port: int, agents: Sequence[str], slot: int) -> Path:
    """Write the scrape target of this process (Prometheus `file_sd`), atomically."""
    folder = home() / "targets"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"worker-{slot}.json"
    target = {
        "targets": [f"127.0.0.1:{port}"],
        "labels": {"job": "worker", "agents": ",".join(agents)},
    }
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps([target]))
    draft.rename(file)
    return file


def _pages(app: LaneApp, agents: Sequence[str]) -> None:
    @app.page("/livez")  # type: ignore[untyped-decorator]
    async def livez(web: View, request: Request) -> Response:
        """Fails when a reader's thread has died or hangs."""
        stuck = [one.name for one in app.lanes if one.stuck]
        return web.json({"stuck": stuck}, status=503 if stuck else 200)

    @app.page("/readyz")  # type: ignore[untyped-decorator]
    async def readyz(web: View, request: Request) -> Response:
        """Succeeds once every agent has its partitions and works on them."""
        waiting = [one.name for one in app.lanes if not one.ready]
        return web.json({"waiting": waiting}, status=503 if waiting else 200)

    @app.page("/metrics")  # type: ignore[untyped-decorator]
    async def exposition(web: View, request: Request) -> Response:
        """Prometheus metrics."""
        return web.bytes(generate_latest(), content_type="text/plain")

    @app.page("/info")  # type: ignore[untyped-decorator]
    async def info(web: View, request: Request) -> Response:
        """What runs here, in which versions."""
        names = ("faust-streaming", "confluent-kafka", "polars")
        versions: dict[str, Any] = {name: version(name) for name in names}
        return web.json({"agents": list(agents), "python": sys.version, "versions": versions})
