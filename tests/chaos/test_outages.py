"""Stores and registry down, slow or lying under load: nothing is lost and nothing counts twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sinks.digest import digest
from tests.chaos.load import Load, Steady, clicks, scores
from tests.chaos.processes import background, fill, until
from tests.chaos.proxy import Proxy
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

OUTAGE_S = 30.0 if FULL else 5.0
RATE = 4_000
ROWS_MAX = 200 * RATE


def loaded(rig: Rig, agent: str = "windows") -> Steady:
    """Traffic at a steady rate until the test is over."""
    load = Load(rig.settings.kafka.bootstrap_servers, rig.topic(agent), rig.schema_ids(agent))
    traffic = scores if agent == "boards" else clicks
    return load.steady(traffic(rig.seed, ROWS_MAX), RATE)


def test_every_outage_is_waited_for(rigs: Callable[..., Rig]) -> None:
    rig = rigs(6, needs=("redis", "clickhouse"))
    rig.create("windows", "events")
    windows, events = rig.sink("windows"), rig.sink("events")
    worker = rig.worker("windows,events", rows_max=4_096)
    with background(loaded(rig)):
        for name, sink in (("redis", windows), ("clickhouse", events)):
            rig.progress(sink, worker)
            rig.proxies[name].set(down=True)
            rig.faults[f"{name} down"] += 1
            time.sleep(1.0)
            stalled = rig.folded(sink)
            time.sleep(OUTAGE_S)
            assert rig.folded(sink) == stalled
            rig.proxies[name].heal()
            rig.progress(sink, worker)
    rig.seen["retry"] = int(worker.metric("headrace_sink_retries_total"))
    rig.drained("windows", windows)
    rig.drained("events", events)
    assert not worker.said("fence refused"), "nobody else wrote"
    verdict = rig.verdict("windows", "ads", windows, ("minutes", "hours"))
    rig.report("T3 outages, windows", verdict, "retry")
    verdict = rig.verdict("events", "ads", events, ("events",))
    assert not verdict.fates["quarantined"]
    rig.report("T3 outages, events", verdict, "retry")


def test_a_store_that_is_killed_in_the_middle_of_writes(rigs: Callable[..., Rig]) -> None:
    rig = rigs(16, needs=("redis", "clickhouse"))
    rig.create("events")
    sink, server = rig.sink("events"), rig.servers["clickhouse"]
    worker = rig.worker("events", rows_max=2_000)
    with background(loaded(rig)):
        for number in range(4):
            rig.progress(sink, worker)
            time.sleep(0.3 + number * 0.37)
            server.kill()
            rig.faults["clickhouse killed"] += 1
            time.sleep(1.0)
            server.start()
            rig.progress(sink, worker)
    rig.seen["retry"] = int(worker.metric("headrace_sink_retries_total"))
    rig.drained("events", sink)
    verdict = rig.verdict("events", "ads", sink, ("events",))
    assert not verdict.fates["quarantined"]
    rig.report("T3 store killed", verdict, "retry")


def test_a_store_whose_disk_is_full_is_waited_for(
    rigs: Callable[..., Rig], disks: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    disk = disks(tmp_path / "clickhouse", 128)
    rig = rigs(17, needs=("redis", "clickhouse"))
    rig.create("events")
    sink = rig.sink("events")
    worker = rig.worker("events", rows_max=2_000)
    with background(loaded(rig)):
        rig.progress(sink, worker)
        ballast = fill(disk)
        rig.faults["disk full"] += 1
        before = worker.metric("headrace_sink_retries_total")
        until(lambda: worker.metric("headrace_sink_retries_total") > before + 2, 60, "retries")
        stalled = rig.folded(sink)
        time.sleep(OUTAGE_S)
        rig.seen["waited"] = rig.folded(sink) == stalled
        ballast.unlink()
        rig.progress(sink, worker)
    rig.drained("events", sink)
    verdict = rig.verdict("events", "ads", sink, ("events",))
    assert not verdict.fates["quarantined"]
    rig.report("T7 store's disk full", verdict, "waited")


def test_a_registry_that_is_down_is_waited_for(rigs: Callable[..., Rig]) -> None:
    rig = rigs(7)
    rig.create("windows")
    sink = rig.sink("windows")
    rig.proxies["registry"].set(down=True)
    rig.faults["registry down"] += 1
    worker = rig.worker("windows")
    with background(loaded(rig)):
        rig.ready(worker)
        time.sleep(OUTAGE_S)
        assert rig.folded(sink) == 0
        rig.seen["retry"] = worker.said("waiting")
        rig.proxies["registry"].heal()
    rig.drained("windows", sink)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    assert not verdict.fates["quarantined"]
    rig.report("T12 registry down", verdict, "retry")


def test_a_lost_reply_is_not_a_lost_or_double_write(rigs: Callable[..., Rig]) -> None:
    """Boards add up: a write that lands twice shows, where absolute rows would hide it."""
    rig = rigs(8, needs=("redis", "clickhouse"))
    rig.create("boards", "events")
    boards, events = rig.sink("boards"), rig.sink("events")
    worker = rig.worker("boards,events", rows_max=1_000)
    with background(loaded(rig, "boards")), background(loaded(rig, "events")):
        rig.progress(boards, worker)
        rig.progress(events, worker)
        for _ in range(4):
            rig.proxies["redis"].set(drop_replies=0.3)
            rig.proxies["clickhouse"].set(drop_replies=0.2)
            time.sleep(OUTAGE_S * 0.7)
            for proxy in rig.proxies.values():
                proxy.heal()
            time.sleep(OUTAGE_S * 0.3)
    rig.drained("boards", boards)
    rig.drained("events", events)
    for name in ("redis", "clickhouse"):
        rig.seen[f"{name} reply lost"] = rig.proxies[name].seen["dropped"]
        rig.faults[f"{name} reply lost"] = rig.proxies[name].seen["dropped"]
    sometimes = ("redis reply lost", "clickhouse reply lost")
    verdict = rig.verdict("boards", "scores", boards, ("all", "periods"))
    rig.report("T4 lost replies, boards", verdict, *sometimes)
    verdict = rig.verdict("events", "ads", events, ("events",))
    rig.report("T4 lost replies, events", verdict, *sometimes)


def test_a_paused_worker_cannot_write_after_its_successor(rigs: Callable[..., Rig]) -> None:
    """The zombie's write is on its way when it is stopped, and arrives after its successor's."""
    rig = rigs(9, kafka_config={"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"})
    rig.create("boards")
    sink = rig.sink("boards")
    direct = rig.proxies["redis"]
    way = rig.proxies["redis"] = rig.proxies["zombie's way"] = Proxy(direct.target)
    zombie = rig.worker("boards", rows_max=500)
    rig.proxies["redis"] = direct
    heir = rig.worker("boards", rows_max=500)
    rig.ready(zombie, heir)
    with background(loaded(rig, "boards")):
        rig.progress(sink, zombie, heir)
        for _ in range(4):
            time.sleep(1.0)
            way.set(delay_s=9.0)  # longer than it takes the group to notice
            time.sleep(0.7)
            zombie.signal(signal.SIGSTOP)
            rig.faults["pause"] += 1
            way.heal()  # for what is sent from now on
            time.sleep(12.0)
            zombie.signal(signal.SIGCONT)
            until(zombie.ready, 30, "the paused worker is back")
            rig.progress(sink, heir)
            if rig.faults["pause"] >= 2 and zombie.said("fence refused"):
                break
    rig.drained("boards", sink)
    rig.seen["fence refused"] = zombie.said("fence refused") + heir.said("fence refused")
    verdict = rig.verdict("boards", "scores", sink, ("all", "periods"))
    rig.report(
        "T5 paused worker", verdict, "fence refused", zombie_writes_accepted=verdict.duplicated
    )


def test_a_store_that_lost_everything_is_refolded(rigs: Callable[..., Rig]) -> None:
    rig = rigs(10)
    rig.create("windows")
    sink = rig.sink("windows")
    worker = rig.worker("windows", rows_max=2_000)
    with background(loaded(rig)):
        for _ in range(2):
            rig.progress(sink, worker)
            time.sleep(2.0)
            rig.redis().flushall()
            rig.faults["flushall"] += 1
    rig.drained("windows", sink)
    before = digest(sink, sink.live_version())
    rig.seen["fence refused"] = worker.said("fence refused")
    # Nothing is written any more: the worker has to notice by itself.
    rig.redis().flushall()
    rig.faults["flushall while idle"] += 1
    rig.drained("windows", sink)
    assert digest(sink, sink.live_version()) == before
    rig.seen["noticed while idle"] = worker.said("while idle")
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.report("T14 store emptied", verdict, "fence refused", "noticed while idle", digest="same")
