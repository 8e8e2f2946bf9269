"""The catalogue exports what dashboards expect, in base units, and follows what it is told."""

import math

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from streams.runtime.metrics import AgentMetrics, Metrics

NOW_S = 1_800_000_000.0
NOW_MS = int(NOW_S * 1000)
LABELS = {"system": "ads", "agent": "ads-windows", "topic": "ads.events"}
GROUP = {"consumergroup": "ads-windows", "topic": "ads.events"}


class Clock:
    def __init__(self) -> None:
        self.now_s = NOW_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def agent(metrics: Metrics, clock: Clock) -> AgentMetrics:
    return metrics.agent(
        "ads-windows", system="ads", topic="ads.events", store="redis", clock=clock
    )


def value(of: AgentMetrics, name: str, /, **labels: str) -> float | None:
    return of.metrics.registry.get_sample_value(name, labels)


def families(metrics: Metrics) -> list[Metric]:
    return list(metrics.registry.collect())


def test_every_family_is_named_documented_and_in_base_units(metrics: Metrics) -> None:
    assert len(families(metrics)) >= 24
    for family in families(metrics):
        assert family.name.startswith(("headrace_", "kafka_consumergroup_", "http_server_"))
        assert family.documentation.endswith(".")
        assert not any(unit in family.name for unit in ("_ms", "_millis", "_micros", "_minutes"))


def test_no_label_can_grow_without_bound(metrics: Metrics) -> None:
    allowed = {"system", "agent", "topic", "partition", "consumergroup", "store", "fate", "reason"}
    allowed |= {"route", "method", "status"}
    for group in (metrics.flow, metrics.lag, metrics.trouble, metrics.rebuild, metrics.api):
        for family in vars(group).values():
            assert set(family._labelnames) <= allowed


@pytest.mark.parametrize(
    ("sample", "first_s", "last_s"),
    [
        ("headrace_end_to_end_seconds", 0.001, 60.0),
        ("headrace_decode_seconds", 0.0001, 30.0),
        ("headrace_fold_seconds", 0.0001, 30.0),
        ("http_server_request_duration_seconds", 0.005, 10.0),
    ],
)
def test_latency_buckets_are_seconds(
    metrics: Metrics, agent: AgentMetrics, sample: str, first_s: float, last_s: float
) -> None:
    """faust#693: a histogram fed milliseconds puts everything into its last bucket."""
    metrics.api.request.labels("/v1/x", "GET", "200").observe(0.01)
    agent.observe_batch(1, decode_s=0.01, fold_s=0.01, write_s=0.01)
    edges = [
        float(s.labels["le"])
        for family in families(metrics)
        for s in family.samples
        if s.name == f"{sample}_bucket"
    ]
    assert (edges[0], edges[-2], edges[-1]) == (first_s, last_s, math.inf)
    assert edges == sorted(edges)


def test_end_to_end_takes_unix_milliseconds_and_observes_seconds(agent: AgentMetrics) -> None:
    agent.observe_end_to_end(NOW_MS - 40)
    name = "headrace_end_to_end_seconds"
    assert value(agent, f"{name}_sum", **LABELS) == pytest.approx(0.040)
    assert value(agent, f"{name}_bucket", le="0.025", **LABELS) == 0
    assert value(agent, f"{name}_bucket", le="0.05", **LABELS) == 1


def test_a_broker_clock_ahead_of_ours_is_no_negative_latency(agent: AgentMetrics) -> None:
    agent.observe_end_to_end(NOW_MS + 5)
    assert value(agent, "headrace_end_to_end_seconds_sum", **LABELS) == 0


def test_a_batch_lands_in_each_of_its_steps(agent: AgentMetrics) -> None:
    agent.observe_batch(20_000, decode_s=0.004, fold_s=0.002, write_s=0.03)
    agent.observe_batch(10, decode_s=0.001, fold_s=0.001, write_s=0.01)
    assert value(agent, "headrace_batches_total", **LABELS) == 2
    assert value(agent, "headrace_batch_rows_sum", **LABELS) == 20_010
    assert value(agent, "headrace_batch_rows_bucket", le="16.0", **LABELS) == 1
    assert value(agent, "headrace_decode_seconds_sum", **LABELS) == pytest.approx(0.005)
    assert value(agent, "headrace_fold_seconds_sum", **LABELS) == pytest.approx(0.003)
    written = value(agent, "headrace_sink_write_seconds_sum", store="redis", **LABELS)
    assert written == pytest.approx(0.04)


def test_counters_count_their_own_thing(agent: AgentMetrics) -> None:
    agent.count("applied", 7)
    agent.count("applied", 3)
    agent.count("late", 2)
    agent.late(2)
    agent.stale("hole", 6)
    agent.dead_letter("bad_bytes", 4)
    agent.fence_refused()
    agent.sink_retry("SinkUnavailable")
    agent.registry_retry()
    agent.restarted()
    agent.restarted(2)
    store = {"store": "redis"}
    assert value(agent, "headrace_rows_total", fate="applied", **LABELS) == 10
    assert value(agent, "headrace_rows_total", fate="late", **LABELS) == 2
    assert value(agent, "headrace_late_rows_total", **LABELS) == 2
    assert value(agent, "headrace_stale_rows_total", **LABELS, reason="hole") == 6
    assert value(agent, "headrace_dead_letters_total", reason="bad_bytes", **LABELS) == 4
    assert value(agent, "headrace_fence_refusals_total", **store, **LABELS) == 1
    retries = value(
        agent, "headrace_sink_retries_total", reason="SinkUnavailable", **store, **LABELS
    )
    assert retries == 1
    assert value(agent, "headrace_registry_retries_total", **LABELS) == 1
    assert value(agent, "headrace_worker_restarts_total", **LABELS) == 3


def test_lag_grows_at_the_scrape_while_the_agent_is_stuck(
    agent: AgentMetrics, clock: Clock
) -> None:
    agent.assigned([0])
    agent.progress(0, 100, watermark_ms=NOW_MS - 3_000, appended_ms=NOW_MS - 500)
    assert value(agent, "kafka_consumergroup_lag", partition="0", **GROUP) == 0
    assert value(agent, "headrace_lag_seconds", partition="0", **LABELS) == 0
    agent.log_end(0, 140)
    clock.now_s += 10
    assert value(agent, "kafka_consumergroup_lag", partition="0", **GROUP) == 40
    assert value(agent, "kafka_consumergroup_current_offset", partition="0", **GROUP) == 100
    assert value(agent, "headrace_lag_seconds", partition="0", **LABELS) == pytest.approx(10.5)
    delay = value(agent, "headrace_watermark_delay_seconds", partition="0", **LABELS)
    assert delay == pytest.approx(13)


def test_a_position_past_an_older_log_end_is_no_negative_lag(agent: AgentMetrics) -> None:
    agent.assigned([0])
    agent.log_end(0, 90)
    agent.progress(0, 100, watermark_ms=NOW_MS)
    assert value(agent, "kafka_consumergroup_lag", partition="0", **GROUP) == 0


def test_no_watermark_is_not_a_delay_of_millions_of_years(agent: AgentMetrics) -> None:
    agent.assigned([0])
    agent.progress(0, 0, watermark_ms=-(2**62))
    delay = value(agent, "headrace_watermark_delay_seconds", partition="0", **LABELS)
    assert delay is not None
    assert math.isnan(delay)


def test_a_revoked_partition_ends_its_series(agent: AgentMetrics) -> None:
    agent.assigned([0, 1])
    assert value(agent, "headrace_assigned_partitions", **LABELS) == 2
    agent.revoked([1, 7])
    agent.progress(1, 5, watermark_ms=NOW_MS)
    agent.log_end(1, 9)
    assert value(agent, "headrace_assigned_partitions", **LABELS) == 1
    shown = {
        (sample.name, sample.labels["partition"])
        for family in agent.metrics.registry.collect()
        for sample in family.samples
        if "partition" in sample.labels
    }
    assert {partition for _, partition in shown} == {"0"}
    assert len(shown) == 4


def test_a_rebuild_shows_how_far_it_is(agent: AgentMetrics) -> None:
    agent.rebuilding(250, 1_000, 2.5)
    assert value(agent, "headrace_rebuild_rows", **LABELS) == 250
    assert value(agent, "headrace_rebuild_target_rows", **LABELS) == 1_000
    assert value(agent, "headrace_rebuild_seconds", **LABELS) == 2.5
