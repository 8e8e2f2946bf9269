"""What a reactor reports: one object per reactor, made by the process's `Metrics`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from streams.runtime.metrics import AgentMetrics, Metrics
from streams.runtime.reactor.core import Core, Done, Later, Move, Over, Why
from streams.runtime.reactor.rules import Reactor


class ReactorMetrics:
    """Counters and gauges of one reactor; `agents` are the lag series of each topic it reads."""

    def __init__(self, metrics: Metrics, reactor: Reactor, system: str) -> None:
        self._families = metrics.reactors
        self._labels = (system, reactor.name, reactor.topic.name)
        topics = [reactor.topic.name, *map(reactor.retry_topic, reactor.retry.levels)]
        self.agents: Mapping[str, AgentMetrics] = {
            topic: metrics.agent(reactor.name, system=system, topic=topic, store="")
            for topic in topics
        }
        self._source = self.agents[reactor.topic.name]
        self._call = self._families.call.labels(*self._labels)
        self._in_flight = self._families.in_flight.labels(*self._labels)
        self._waiting = self._families.waiting.labels(*self._labels)
        self._breakers_open = self._families.breakers_open.labels(*self._labels)

    def began(self, core: Core) -> float:
        """A call begins; hand the answer to `ended`."""
        self._show(core)
        return time.monotonic()

    def ended(self, began_s: float, move: Move, core: Core) -> None:
        """A call ended and this came of it."""
        self._call.observe(time.monotonic() - began_s)
        self._families.calls.labels(*self._labels, _result(move)).inc()
        self._show(core)

    def later(self, why: Why) -> None:
        """A record goes to a retry topic."""
        self._families.deferred.labels(*self._labels, why.value).inc()

    def passed_over(self, reason: str) -> None:
        """A record leads to no call."""
        self._families.passed_over.labels(*self._labels, reason).inc()

    def dead_letter(self, reason: str) -> None:
        """A record goes to the dead letter topic."""
        self._source.dead_letter(reason)

    def _show(self, core: Core) -> None:
        self._in_flight.set(core.admission.running)
        self._waiting.set(core.admission.waiting)
        self._breakers_open.set(core.breakers.open)


def _result(move: Move) -> str:
    match move:
        case Done():
            return "done"
        case Over():
            return "gave_up"
        case Later(why=Why.FAILED):
            return "failed"
    return "held_back"
