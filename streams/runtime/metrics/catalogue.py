"""Every metric Headrace exports, in one place.

`Metrics` declares the families on one registry, in groups (`flow`, `lag`, `trouble`, `rebuild`,
`reactors`, `api`, `limits`, `chat`, `suggestions`); dashboards, alert rules and their tests are
checked against it.

Units are base units (seconds, records). Labels are small sets: system, agent, topic, partition,
store, fate, reason; never offsets, keys or ids. The Kafka names are those of the usual lag
exporters, so that existing dashboards find them; the consumer group is the agent's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from streams.runtime.metrics.agent import AgentMetrics
from streams.runtime.metrics.edge import Api, Chat, Limits, Suggestions

AGENT = ("system", "agent", "topic")
PARTITION = (*AGENT, "partition")
GROUP = ("consumergroup", "topic", "partition")

WORK_BUCKETS_S = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""For one step of one batch: 0.1 ms to 30 s."""
END_TO_END_BUCKETS_S = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
"""Log append to durable in the sink: 1 ms to 60 s."""
ROW_BUCKETS = tuple(float(4**power) for power in range(10))
"""Rows of a batch: 1 to 262,144 by powers of four."""


class Flow:
    """What passes through an agent and how long each step takes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows = Counter(
            "headrace_rows_total",
            "Rows folded, by what became of them; the sum over fates is the rows read.",
            (*AGENT, "fate"),
            registry=registry,
        )
        self.batches = Counter(
            "headrace_batches_total", "Batches stored.", AGENT, registry=registry
        )
        self.batch_rows = Histogram(
            "headrace_batch_rows",
            "Rows of a batch.",
            AGENT,
            buckets=ROW_BUCKETS,
            registry=registry,
        )
        self.decode = Histogram(
            "headrace_decode_seconds",
            "Time to decode one batch from Avro into columns.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.fold = Histogram(
            "headrace_fold_seconds",
            "Time to fold one batch.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.write = Histogram(
            "headrace_sink_write_seconds",
            "Time of one fenced write, until it is durable, retries included.",
            (*AGENT, "store"),
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.end_to_end = Histogram(
            "headrace_end_to_end_seconds",
            "From log append to durable in the sink: the oldest record of each write, so an "
            "upper bound for all its records.",
            AGENT,
            buckets=END_TO_END_BUCKETS_S,
            registry=registry,
        )
        self.queue_rows = Gauge(
            "headrace_queue_rows", "Records fetched and not yet folded.", AGENT, registry=registry
        )


class Lag:
    """How far an agent is behind. All are computed at the scrape, so a stuck agent shows."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.records = Gauge(
            "kafka_consumergroup_lag",
            "Offsets between the stored position and the end of the log.",
            GROUP,
            registry=registry,
        )
        self.current_offset = Gauge(
            "kafka_consumergroup_current_offset",
            "The first offset that is not in the read model yet.",
            GROUP,
            registry=registry,
        )
        self.seconds = Gauge(
            "headrace_lag_seconds",
            "Age of the newest folded record while records wait behind it; 0 when caught up.",
            PARTITION,
            registry=registry,
        )
        self.watermark_delay = Gauge(
            "headrace_watermark_delay_seconds",
            "Wall clock minus the event-time watermark; NaN before the first event.",
            PARTITION,
            registry=registry,
        )
        self.assigned = Gauge(
            "headrace_assigned_partitions",
            "Partitions this process folds.",
            AGENT,
            registry=registry,
        )


class Trouble:
    """What went wrong and was survived."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.fence_refusals = Counter(
            "headrace_fence_refusals_total",
            "Writes refused because somebody else moved the position.",
            (*AGENT, "store"),
            registry=registry,
        )
        self.sink_retries = Counter(
            "headrace_sink_retries_total",
            "Writes tried again, by reason.",
            (*AGENT, "store", "reason"),
            registry=registry,
        )
        self.registry_retries = Counter(
            "headrace_registry_retries_total",
            "Schema look-ups tried again because the registry did not answer.",
            AGENT,
            registry=registry,
        )
        self.dead_letters = Counter(
            "headrace_dead_letters_total",
            "Records quarantined to the dead letter topic, by reason.",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.late_rows = Counter(
            "headrace_late_rows_total",
            "Rows beyond the allowed lateness, written to the late side output.",
            AGENT,
            registry=registry,
        )
        self.stale_rows = Counter(
            "headrace_stale_rows_total",
            "Records refused by the reader rule: of a deposed decider or behind a hole in its "
            "numbers (epoch, seq), derived again or behind a hole (repeat, hole), or foreign.",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.worker_restarts = Counter(
            "headrace_worker_restarts_total",
            "Times the agent was started again after an error, in this process or the ones before.",
            AGENT,
            registry=registry,
        )


class Reactors:
    """Calls to the outside."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.calls = Counter(
            "headrace_reactor_calls_total",
            "Calls to the outside that ended, by result (done, failed, gave_up, held_back).",
            (*AGENT, "result"),
            registry=registry,
        )
        self.call = Histogram(
            "headrace_reactor_call_seconds",
            "Time of one call to the outside, waiting for a rate limit included.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.deferred = Counter(
            "headrace_reactor_deferred_total",
            "Records sent to a retry topic, by reason; all but failed cost no try.",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.passed_over = Counter(
            "headrace_reactor_passed_over_total",
            "Records that led to no call, by reason (stale: refused by the reader rule).",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.in_flight = Gauge(
            "headrace_reactor_in_flight", "Calls that run now.", AGENT, registry=registry
        )
        self.waiting = Gauge(
            "headrace_reactor_waiting",
            "Tasks that wait for their target's or tenant's limit.",
            AGENT,
            registry=registry,
        )
        self.breakers_open = Gauge(
            "headrace_reactor_breakers_open",
            "Providers that are not called because calls to them fail.",
            AGENT,
            registry=registry,
        )


class Rebuild:
    """Progress of the rebuild that runs, or of the last one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.rows = Gauge(
            "headrace_rebuild_rows", "Rows folded by the rebuild.", AGENT, registry=registry
        )
        self.target = Gauge(
            "headrace_rebuild_target_rows",
            "Rows between its start and the end of the log.",
            AGENT,
            registry=registry,
        )
        self.seconds = Gauge(
            "headrace_rebuild_seconds", "Time since it started.", AGENT, registry=registry
        )


class Decisions:
    """What deciders do; see `streams.runtime.decider`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.decided = Counter(
            "headrace_decisions_total",
            "Commands decided, and timers fired, by code: accepted, or why not.",
            (*AGENT, "code"),
            registry=registry,
        )
        self.seconds = Histogram(
            "headrace_decide_seconds",
            "Time of one piece of work: a span of commands, or of events read back.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.in_flight = Gauge(
            "headrace_decisions_in_flight",
            "Decisions that are not read back yet.",
            PARTITION,
            registry=registry,
        )
        self.claims = Counter(
            "headrace_claims_total",
            "Claims of a partition's ownership that were sent.",
            AGENT,
            registry=registry,
        )
        self.abandoned = Counter(
            "headrace_epochs_abandoned_total",
            "Epochs of ownership that were given up, by reason.",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.stale = Counter(
            "headrace_stale_records_total",
            "Records that the reader rule refused, by reason.",
            (*AGENT, "reason"),
            registry=registry,
        )
        self.replies_dropped = Counter(
            "headrace_replies_dropped_total",
            "Verdicts that could not be told; their senders ask later.",
            AGENT,
            registry=registry,
        )
        self.recovery = Histogram(
            "headrace_recovery_seconds",
            "From being given a partition to deciding its first command.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.snapshot_time = Gauge(
            "headrace_snapshot_timestamp_seconds",
            "When the newest snapshot was written (Unix time).",
            PARTITION,
            registry=registry,
        )
        self.snapshot_seconds = Histogram(
            "headrace_snapshot_seconds",
            "Time to write one snapshot.",
            AGENT,
            buckets=WORK_BUCKETS_S,
            registry=registry,
        )
        self.snapshot_bytes = Gauge(
            "headrace_snapshot_bytes", "Size of the newest snapshot.", PARTITION, registry=registry
        )


class Metrics:
    """The catalogue on one registry; `default()` is the process's own, tests make theirs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # A `_created` series beside each counter doubles the exposition and nobody reads it.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry
        self.flow = Flow(registry)
        self.lag = Lag(registry)
        self.trouble = Trouble(registry)
        self.rebuild = Rebuild(registry)
        self.reactors = Reactors(registry)
        self.api = Api(registry)
        self.limits = Limits(registry)
        self.chat = Chat(registry)
        self.suggestions = Suggestions(registry)
        self.decisions = Decisions(registry)

    def agent(
        self,
        agent: str,
        *,
        system: str,
        topic: str,
        store: str,
        clock: Callable[[], float] = time.time,
    ) -> AgentMetrics:
        """The reporting object of one agent; `clock` gives Unix seconds."""
        return AgentMetrics(self, agent, system=system, topic=topic, store=store, clock=clock)


@cache
def default() -> Metrics:
    """The catalogue on the process-wide registry, which `/metrics` shows."""
    return Metrics(REGISTRY)
