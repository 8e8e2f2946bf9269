"""What fault tests run on: own stores, own topics, worker processes, and faults between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import polars as pl
import redis
from confluent_kafka.admin import AdminClient

from infra.local.ports import free_port
from schemas import apply as topics
from schemas.registry import RegistryClient, schema_ids, subjects
from sinks.open import open_sink
from streams.runtime.kafka import admin, log_bounds
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink, SinkUnavailable
from tests.chaos.processes import (
    READY_S,
    ROOT,
    Broker,
    Server,
    Worker,
    until,
)
from tests.chaos.proxy import Proxy
from tests.chaos.stores import STORES
from tests.chaos.verdict import Verdict
from tests.chaos.worker import deciders, derivations, projections

FULL = os.environ.get("CHAOS_FULL") == "1"
"""The long runs: set by hand, not in CI."""
DRAIN_S = 120.0


@dataclass
class Rig:
    """One run: names, addresses behind proxies, and everything to stop at the end."""

    folder: Path
    seed: int
    kafka_config: dict[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ("redis",)
    """`kafka`: a broker of its own; `detour`: which can also be reached through a proxy."""

    def __post_init__(self) -> None:
        self.settings = Settings.read()
        self.proxies: dict[str, Proxy] = {}
        if "kafka" in self.needs:
            self.broker = Broker(self.folder)
            if "detour" in self.needs:
                port = free_port()
                self.proxies["kafka"] = Proxy(port, self.seed)
                self.broker.detour(port, self.proxies["kafka"].port)
            own = self.settings.kafka.model_copy(
                update={"bootstrap_servers": self.broker.bootstrap}
            )
            self.settings = self.settings.model_copy(update={"kafka": own})
            self.broker.start()
        self.run = f"chaos-{uuid4().hex[:8]}"
        self.projections = projections(self.run)
        self.deciders = deciders(self.run)
        self.seen: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.servers: dict[str, Server] = {}
        self.workers: list[Worker] = []
        self.sinks: list[Sink] = []
        self.admin: AdminClient = admin(self.settings.kafka)
        for name in STORES:
            if name in self.needs:
                server = self.servers[name] = STORES[name](self.folder)
                self.proxies[name] = Proxy(server.port, self.seed)
        registry = urlsplit(self.settings.registry.url)
        assert registry.hostname in ("127.0.0.1", "localhost") and registry.port
        self.proxies["registry"] = Proxy(registry.port, self.seed)

    # -- topics ---------------------------------------------------------------------------------

    def topic(self, agent: str) -> Any:
        return self.projections[agent].topic

    def create(self, *agents: str) -> None:
        """Topics and schemas of these agents."""
        found = {}
        for agent in agents:
            decider = self.deciders.get(agent)
            for topic in [decider.commands, decider.events] if decider else [self.topic(agent)]:
                found[topic.name] = topic
        self.topics = list(found.values())
        topics.apply(self.settings, self.topics)

    def schema_ids(self, agent: str) -> dict[str, int]:
        """Of the topic that the agent reads."""
        decider = self.deciders.get(agent)
        topic = decider.commands if decider else self.topic(agent)
        return schema_ids(topic, self.settings.registry)

    def delete_topics(self) -> None:
        names = [n for t in self.topics for n in (t.name, t.dead_letters, t.late)]
        for future in self.admin.delete_topics(names).values():
            with suppress(Exception):
                future.result(15)

    def delete_groups(self) -> None:
        agents = self.projections | self.deciders | derivations(self.run)
        groups = [agent.name for agent in agents.values()]
        for future in self.admin.delete_consumer_groups(groups).values():
            with suppress(Exception):  # one that never was
                future.result(15)

    def ends(self, topic: str) -> dict[int, int]:
        """End offset of every partition."""
        partitions = self.admin.list_topics(topic, 10).topics[topic].partitions
        return {p: log_bounds(self.admin, topic, p).end for p in partitions}

    # -- workers --------------------------------------------------------------------------------

    def environment(self) -> dict[str, str]:
        """Every address: stores and registry behind their proxies."""
        env = {n: v for n, v in os.environ.items() if not n.startswith("HEADRACE_")}
        registry = urlsplit(self.settings.registry.url)
        proxied = registry._replace(netloc=f"127.0.0.1:{self.proxies['registry'].port}")
        env |= {
            "HEADRACE_HOME": str(self.folder / "home"),
            "HEADRACE_KAFKA__BOOTSTRAP_SERVERS": self.settings.kafka.bootstrap_servers,
            "HEADRACE_KAFKA__CONFIG": json.dumps(self.kafka_config),
            "HEADRACE_REGISTRY__URL": proxied.geturl(),
            "PYTHONPATH": str(ROOT),
            "POLARS_MAX_THREADS": "2",
        }
        for name, server in self.servers.items():
            for field_, value in server.section(self.proxies[name].port).items():
                text = value if isinstance(value, str) else json.dumps(value)
                env[f"HEADRACE_{name}__{field_}".upper()] = text
        return env

    def command(self, agents: str, slot: int, port: int, **options: Any) -> list[str]:
        more = [(f"--{n.replace('_', '-')}", str(v)) for n, v in options.items() if v is not None]
        return [
            *(sys.executable, "-m", "tests.chaos.worker", self.run, "--agents", agents),
            *("--slot", str(slot), "--port", str(port), *(word for pair in more for word in pair)),
        ]

    def worker(
        self, agents: str, rows_max: int | None = None, *, bootstrap: str = "", **options: Any
    ) -> Worker:
        """Another worker process; `bootstrap` is its own way to the broker."""
        slot, port = len(self.workers), free_port()
        command = self.command(agents, slot, port, rows_max=rows_max, **options)
        environment = self.environment()
        if bootstrap:
            environment["HEADRACE_KAFKA__BOOTSTRAP_SERVERS"] = bootstrap
        worker = Worker(command, environment, port, self.folder / f"worker-{slot}.log")
        self.workers.append(worker)
        return worker

    def supervised(self, agents: str) -> Worker:
        """A worker under the product's supervisor; the process is the supervisor."""
        slot, port = len(self.workers), free_port()
        command = [
            *(sys.executable, "-m", "tests.chaos.supervised"),
            json.dumps(self.command(agents, slot, port)),
        ]
        worker = Worker(command, self.environment(), port, self.folder / f"worker-{slot}.log")
        self.workers.append(worker)
        return worker

    def ready(self, *workers: Worker) -> None:
        for worker in workers:
            until(worker.ready, READY_S, f"worker ready, see {worker.log}")

    # -- what is stored -------------------------------------------------------------------------

    def sink(self, agent: str) -> Sink:
        """The product's own sink, past the proxies."""
        sections = {name: one.section(one.port) for name, one in self.servers.items()}
        one: Projection = self.projections[agent]
        sink = open_sink(one.store, one.model, Settings(**sections))
        self.sinks.append(sink)
        return sink

    def redis(self) -> redis.Redis:
        return redis.Redis(port=self.servers["redis"].port)

    def positions(self, sink: Sink) -> dict[int, Position]:
        """By log partition; waits while the store does not answer."""

        def asked() -> list[Mapping[tuple[str, int], Position]]:
            with suppress(SinkUnavailable):
                return [sink.positions(sink.live_version())]
            return []

        (found,) = until(asked, READY_S, "the store answers")
        return {partition: position for (_, partition), position in found.items()}

    def folded(self, sink: Sink) -> int:
        """Records folded so far, over all partitions."""
        return sum(one.next_offset for one in self.positions(sink).values())

    def progress(self, sink: Sink, *workers: Worker) -> None:
        """Wait until more is folded than now."""
        before = self.folded(sink)

        def more() -> bool:
            for worker in workers:
                assert worker.process.poll() is None, f"ended, see {worker.log}\n{worker.tail()}"
            return self.folded(sink) > before

        until(more, READY_S, "progress")

    def drained(self, agent: str, sink: Sink, within_s: float = DRAIN_S) -> None:
        """Wait until the read model has folded the log to its end."""
        ends = self.ends(self.topic(agent).name)

        def caught_up() -> bool:
            at = self.positions(sink)
            return all(
                end == 0 or (p in at and at[p].next_offset == end) for p, end in ends.items()
            )

        try:
            until(caught_up, within_s, f"{agent} folds up to {ends}")
        except AssertionError as late:
            late.add_note(f"stored: {self.positions(sink)}")
            raise

    # -- the verdict ----------------------------------------------------------------------------

    def recount(self, agent: str, rules: str) -> Path:
        """What the read model must hold, by an independent program."""
        out = self.folder / f"recount-{agent}"
        subprocess.run(
            [
                *(sys.executable, str(ROOT / "tests/chaos/recount.py")),
                *("--bootstrap", self.settings.kafka.bootstrap_servers),
                *("--registry", self.settings.registry.url),
                *("--topic", self.topic(agent).name, "--rules", rules, "--out", str(out)),
            ],
            check=True,
            timeout=170,
        )
        return out

    def verdict(self, agent: str, rules: str, sink: Sink, tables: tuple[str, ...]) -> Verdict:
        """Compare what is stored with the recount, row by row and fate by fate."""
        out = self.recount(agent, rules)
        verdict = Verdict()
        version = sink.live_version()
        fates = json.loads((out / "fates.json").read_text())
        positions = self.positions(sink)
        for partition, counted in fates.items():
            verdict.records += counted["records"]
            if not counted["records"]:
                continue
            stored = dict(positions[int(partition)].counts)
            verdict.fates.update(stored)
            if stored != counted["fates"]:
                verdict.wrong.append(f"{agent}/{partition}: {stored}, recount {counted['fates']}")
            if sum(stored.values()) != counted["records"]:
                verdict.wrong.append(f"{agent}/{partition}: in is not the sum of the fates")
        for table in tables:
            verdict.compare(table, pl.concat(list(sink.rows(version, table))), out)
        return verdict

    def report(self, test: str, verdict: Verdict, *sometimes: str, **more: Any) -> None:
        """Print the line of the run, and fail it where the read model is wrong, or where a fault
        that it is about never happened.
        """
        never = [name for name in sometimes if not self.seen[name]]
        facts = "".join(f"{name}={value} " for name, value in more.items())
        self.tell(
            f"{test}: seed={self.seed} records={verdict.records} faults={dict(self.faults)} "
            f"lost={verdict.lost} duplicated={verdict.duplicated} fates={dict(verdict.fates)} "
            f"{facts}sometimes={ {name: self.seen[name] for name in sometimes} }"
        )
        assert not verdict.wrong, "\n".join(verdict.wrong[:20])
        assert (verdict.lost, verdict.duplicated) == (0, 0)
        assert not never, f"void: {never} never happened"

    def tell(self, line: str) -> None:
        """Print the line of a run, and write it where `headrace chaos` collects them."""
        print(f"\n{line}")
        if report := os.environ.get("CHAOS_REPORT"):
            with Path(report).open("a") as out:
                out.write(line + "\n")

    def close(self) -> None:
        """End every process, delete every topic and subject."""
        for worker in self.workers:
            if worker.process.poll() is None:
                with suppress(ProcessLookupError):
                    worker.signal(signal.SIGCONT)
                try:
                    worker.end(15)
                except subprocess.TimeoutExpired:
                    worker.kill()
        for sink in self.sinks:
            sink.close()
        for proxy in self.proxies.values():
            proxy.close()
        for server in self.servers.values():
            server.stop()
        if "kafka" in self.needs:
            self.broker.stop()
        if hasattr(self, "topics"):
            if "kafka" not in self.needs:
                self.delete_topics()
                self.delete_groups()
            with RegistryClient(self.settings.registry) as registry:
                for topic in self.topics:
                    for subject in subjects(topic):
                        with suppress(Exception):
                            registry.delete(subject.name)
