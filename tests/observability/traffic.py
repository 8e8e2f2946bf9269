"""Sample traffic over the whole catalogue, one step at each scrape, so that rates are not 0."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from streams import catalog
from streams.runtime.metrics import AgentMetrics, Metrics
from streams.runtime.metrics.decider import DeciderMetrics

AGENTS = tuple(
    (system.name, projection.name, projection.topic.name, projection.store)
    for system in map(catalog.load, catalog.SYSTEMS)
    for projection in system.projections
)
LAG = 25
END_TO_END_MS = 40
PARTITIONS = (0, 1)


class Traffic(Collector):
    """Emits nothing itself; being collected is the tick of the sample traffic."""

    def __init__(self, registry: CollectorRegistry) -> None:
        registry.register(self)
        self.ticks = 0
        self.metrics = Metrics(registry)
        self.agents = [
            self.metrics.agent(agent, system=system, topic=topic, store=store)
            for system, agent, topic, store in AGENTS
        ]
        for agent in self.agents:
            agent.assigned(PARTITIONS)
        self.deciders = [
            DeciderMetrics(self.metrics, (system, agent_name, topic))
            for system, agent_name, topic, _ in AGENTS
        ]

    def collect(self) -> Iterable[Metric]:
        self.ticks += 1
        now_ms = int(time.time() * 1000)
        for agent in self.agents:
            self._fold(agent, now_ms)
            _fail(agent)
            agent.rebuilding(250 * self.ticks, 1_000_000, 1.0 * self.ticks)
        for system, agent_name, topic, _ in AGENTS:
            self._call(system, agent_name, topic)
        for decider in self.deciders:
            self._decide(decider)
        self.metrics.limits.decided.labels("admitted").inc(10)
        self.metrics.limits.dropped.labels("full").inc(10)
        self.metrics.suggestions.built.labels("typeahead").set(now_ms / 1_000)
        self.metrics.chat.sockets.set(100)
        self.metrics.chat.frames.labels("entry").inc(1_000)
        self.metrics.chat.cuts.labels("4008").inc(10)
        for system, _, topic, _ in AGENTS:
            self.metrics.api.events.labels(system, topic).inc(100)
            request = self.metrics.api.request
            request.labels(f"/v1/{system}/events", "POST", "202").observe(0.02)
            request.labels(f"/v1/{system}/events", "POST", "503").observe(0.02)
        return ()

    def _call(self, *labels: str) -> None:
        reactors = self.metrics.reactors
        reactors.calls.labels(*labels, "done").inc(10)
        reactors.call.labels(*labels).observe(0.02)
        reactors.deferred.labels(*labels, "failed").inc(10)
        reactors.passed_over.labels(*labels, "stale").inc(10)
        reactors.in_flight.labels(*labels).set(3)
        reactors.waiting.labels(*labels).set(2)
        reactors.breakers_open.labels(*labels).set(1)

    def _fold(self, agent: AgentMetrics, now_ms: int) -> None:
        for fate in ("applied", "duplicate", "late", "filtered"):
            agent.count(fate, 100)
        agent.observe_batch(400, decode_s=0.004, fold_s=0.002, write_s=0.01)
        agent.observe_end_to_end(now_ms - END_TO_END_MS)
        agent.queue(50)
        for partition in PARTITIONS:
            at = 400 * self.ticks
            agent.progress(partition, at, watermark_ms=now_ms - 2_000, appended_ms=now_ms - 500)
            agent.log_end(partition, at + LAG)

    def _decide(self, decider: DeciderMetrics) -> None:
        counted = {
            "decided": Counter(accepted=90 * self.ticks, duplicate=10 * self.ticks),
            "stale": Counter(epoch=self.ticks),
            "abandoned": Counter(claim=self.ticks),
        }
        decider.tell(0, 5, self.ticks, counted)
        decider.worked(0.002)
        decider.recovered(1.5)
        decider.dropped(1)
        decider.snapshot(0, 1_000_000, 0.5)


def _fail(agent: AgentMetrics) -> None:
    agent.late(100)
    agent.stale("epoch", 3)
    agent.dead_letter("bad_bytes")
    agent.fence_refused()
    agent.sink_retry("SinkUnavailable")
    agent.registry_retry()
    agent.restarted()
