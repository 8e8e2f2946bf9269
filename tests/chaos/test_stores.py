"""Cassandra and S3, killed in the middle of writes and with lost replies: equal to the recount."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.chaos.load import Load, clicks
from tests.chaos.processes import background
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

KILLS, LOSSES = (8, 12) if FULL else (2, 3)
RATE = 1_500
ROWS_MAX = 2_000 * RATE


def broken_again_and_again(rig: Rig, store: str, agent: str, tables: tuple[str, ...]) -> None:
    """Kill the store under load, lose replies on the way from it, then compare."""
    rig.create(agent)
    sink, server = rig.sink(agent), rig.servers[store]
    worker = rig.worker(agent, rows_max=500)
    load = Load(rig.settings.kafka.bootstrap_servers, rig.topic(agent), rig.schema_ids(agent))
    with background(load.steady(clicks(rig.seed, ROWS_MAX), RATE)):
        for number in range(KILLS):
            rig.progress(sink, worker)
            time.sleep(0.2 + number * 0.37)
            server.kill()
            rig.faults[f"{store} killed"] += 1
            time.sleep(1.0)
            server.start()
            rig.progress(sink, worker)
        for _ in range(LOSSES):
            rig.progress(sink, worker)
            rig.proxies[store].set(drop_replies=0.2)
            time.sleep(3.0)
            rig.proxies[store].heal()
    rig.drained(agent, sink)
    rig.faults["reply lost"] = rig.proxies[store].seen["dropped"]
    rig.seen["reply lost"] = rig.faults["reply lost"]
    rig.seen["retry"] = int(worker.metric("headrace_sink_retries_total"))
    verdict = rig.verdict(agent, "ads", sink, tables)
    assert not verdict.fates["quarantined"]
    rig.report(f"T3 T4 {store} killed, replies lost", verdict, "reply lost", "retry")


@pytest.mark.timeout(1_200 if FULL else 600)
def test_cassandra_is_killed_and_its_replies_are_lost(rigs: Callable[..., Rig]) -> None:
    rig = rigs(35, needs=("cassandra",))
    broken_again_and_again(rig, "cassandra", "wide", ("minutes", "hours"))


@pytest.mark.timeout(1_200 if FULL else 600)
def test_s3_is_killed_and_its_replies_are_lost(rigs: Callable[..., Rig]) -> None:
    rig = rigs(36, needs=("s3",))
    broken_again_and_again(rig, "s3", "bulk", ("events",))
