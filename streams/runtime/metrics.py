"""Every metric Headrace exports: one catalogue, and the small object a lane reports through.

`Metrics` declares the families on one registry, in groups (`flow`, `lag`, `trouble`, `rebuild`,
`api`); dashboards, alert rules and their tests are checked against it. `AgentMetrics` is what
the hot path holds: the children of one agent, looked up once, so that a batch costs a dozen
additions and no label lookup.

Units are base units (seconds, records). Labels are small sets: system, agent, topic, partition,
store, fate, reason; never offsets, keys or ids. The Kafka names are those of the usual lag
exporters, so that existing dashboards find them; the consumer group is the agent's name.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

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
HTTP_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Those of OpenTelemetry's `http.server.request.duration`."""
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
            "Wall clock minus the event-time watermark; absent before the first event.",
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
        self.worker_restarts = Counter(
            "headrace_worker_restarts_total",
            "Times an agent's loop was started again after an error.",
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


class Api:
    """The HTTP edge. `route` is the route template, never the path."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.request = Histogram(
            "http_server_request_duration_seconds",
            "Time to answer a request.",
            ("route", "method", "status"),
            buckets=HTTP_BUCKETS_S,
            registry=registry,
        )
        self.events = Counter(
            "headrace_api_events_total",
            "Events acknowledged by the log.",
            ("system", "topic"),
            registry=registry,
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
        self.api = Api(registry)

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


@dataclass(slots=True)
class _Progress:
    """What the lane last said about one partition; the gauges read it at the scrape."""

    next_offset: int = 0
    log_end: int = 0
    appended_ms: int | None = None

    def lag(self) -> int:
        return max(0, self.log_end - self.next_offset)


class AgentMetrics:
    """The metrics of one agent. Thread safe; every method is cheap and never raises.

    A partition's lag series exist from `assigned` to `revoked`, so that a partition that moved
    to another process is not reported twice.
    """

    def __init__(
        self,
        metrics: Metrics,
        agent: str,
        *,
        system: str,
        topic: str,
        store: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.metrics = metrics
        self._agent, self._topic, self._store, self._clock = agent, topic, store, clock
        self._labels = labels = (system, agent, topic)
        flow, trouble = metrics.flow, metrics.trouble
        self._batches = flow.batches.labels(*labels)
        self._batch_rows = flow.batch_rows.labels(*labels)
        self._decode = flow.decode.labels(*labels)
        self._fold = flow.fold.labels(*labels)
        self._write = flow.write.labels(*labels, store)
        self._end_to_end = flow.end_to_end.labels(*labels)
        self._queue_rows = flow.queue_rows.labels(*labels)
        self._assigned = metrics.lag.assigned.labels(*labels)
        self._fence_refusals = trouble.fence_refusals.labels(*labels, store)
        self._registry_retries = trouble.registry_retries.labels(*labels)
        self._late_rows = trouble.late_rows.labels(*labels)
        self._restarts = trouble.worker_restarts.labels(*labels)
        self._fates: dict[str, Counter] = {}
        self._partitions: dict[int, _Progress] = {}

    def count(self, fate: str, rows: int = 1) -> None:
        """`rows` met this fate (a `Fate`)."""
        child = self._fates.get(fate)
        if child is None:
            child = self._fates[fate] = self.metrics.flow.rows.labels(*self._labels, str(fate))
        child.inc(rows)

    def observe_batch(self, rows: int, *, decode_s: float, fold_s: float, write_s: float) -> None:
        """A batch of `rows` was decoded, folded and stored in these seconds."""
        self._batches.inc()
        self._batch_rows.observe(rows)
        self._decode.observe(decode_s)
        self._fold.observe(fold_s)
        self._write.observe(write_s)

    def observe_end_to_end(self, oldest_append_ms: int) -> None:
        """A write became durable now; its oldest record was appended at this Unix time."""
        self._end_to_end.observe(max(0.0, self._clock() - oldest_append_ms / 1000))

    def queue(self, rows: int) -> None:
        """So many records are fetched and not folded yet."""
        self._queue_rows.set(rows)

    def fence_refused(self) -> None:
        """A write was refused by the fence."""
        self._fence_refusals.inc()

    def sink_retry(self, reason: str) -> None:
        """A write is tried again; `reason` is an exception's class name, never its text."""
        self.metrics.trouble.sink_retries.labels(*self._labels, self._store, reason).inc()

    def registry_retry(self) -> None:
        """A schema look-up is tried again."""
        self._registry_retries.inc()

    def dead_letter(self, reason: str, rows: int = 1) -> None:
        """Records went to the dead letter topic; `reason` is from a small set."""
        self.metrics.trouble.dead_letters.labels(*self._labels, reason).inc(rows)

    def late(self, rows: int) -> None:
        """Rows went to the late side output."""
        self._late_rows.inc(rows)

    def restarted(self) -> None:
        """The agent's loop starts again after an error."""
        self._restarts.inc()

    def assigned(self, partitions: Iterable[int]) -> None:
        """This process folds these partitions from now on, beside those it has."""
        for partition in partitions:
            if partition not in self._partitions:
                progress = self._partitions[partition] = _Progress()
                self._show(partition, progress)
        self._assigned.set(len(self._partitions))

    def revoked(self, partitions: Iterable[int]) -> None:
        """This process no longer folds these; their lag series end."""
        lag = self.metrics.lag
        for partition in partitions:
            if self._partitions.pop(partition, None) is not None:
                group = (self._agent, self._topic, str(partition))
                for gauge in (lag.records, lag.current_offset):
                    gauge.remove(*group)
                for gauge in (lag.seconds, lag.watermark_delay):
                    gauge.remove_by_labels(self._partition_labels(partition))
        self._assigned.set(len(self._partitions))

    def progress(
        self, partition: int, next_offset: int, *, watermark_ms: int, appended_ms: int | None = None
    ) -> None:
        """The stored position of a partition: first offset not folded, watermark, and when the
        newest folded record was appended (None: not known). Ignored unless assigned.
        """
        progress = self._partitions.get(partition)
        if progress is None:
            return
        progress.next_offset = next_offset
        progress.log_end = max(progress.log_end, next_offset)
        if appended_ms is not None:
            progress.appended_ms = appended_ms
        if watermark_ms > 0:
            self.metrics.lag.watermark_delay.labels(*self._labels, str(partition)).set_function(
                lambda: self._clock() - watermark_ms / 1000
            )

    def log_end(self, partition: int, offset: int) -> None:
        """The end of a partition's log (the next offset to be written). Ignored unless assigned."""
        progress = self._partitions.get(partition)
        if progress is not None:
            progress.log_end = offset

    def rebuilding(self, rows: int, target_rows: int, seconds: float) -> None:
        """A rebuild has folded `rows` of `target_rows` after so many seconds."""
        rebuild = self.metrics.rebuild
        rebuild.rows.labels(*self._labels).set(rows)
        rebuild.target.labels(*self._labels).set(target_rows)
        rebuild.seconds.labels(*self._labels).set(seconds)

    def _partition_labels(self, partition: int) -> dict[str, str]:
        return dict(zip(PARTITION, (*self._labels, str(partition)), strict=True))

    def _show(self, partition: int, progress: _Progress) -> None:
        def age_s() -> float:
            if progress.lag() == 0 or progress.appended_ms is None:
                return 0.0
            return max(0.0, self._clock() - progress.appended_ms / 1000)

        lag, group = self.metrics.lag, (self._agent, self._topic, str(partition))
        lag.records.labels(*group).set_function(progress.lag)
        lag.current_offset.labels(*group).set_function(lambda: progress.next_offset)
        lag.seconds.labels(*self._labels, str(partition)).set_function(age_s)
