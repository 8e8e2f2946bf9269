"""kill -9 under load: the read models equal an independent recount, whatever died when."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.chaos.load import Load, clicks, scores
from tests.chaos.rig import FULL, Rig, background

pytestmark = [pytest.mark.stack, pytest.mark.slow]

RECORDS, KILLS = (1_000_000, 10) if FULL else (120_000, 4)


@pytest.mark.timeout(1_200 if FULL else 300)
def test_ads_survive_kills_and_rebalances(rigs: Callable[..., Rig]) -> None:
    seed = 1
    rig = rigs(seed, needs=("redis", "clickhouse"), kafka_config={"session.timeout.ms": "6000"})
    rig.create("windows", "events")
    chance = random.Random(seed)
    load = Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )
    windows, events = rig.sink("windows"), rig.sink("events")
    workers = [rig.worker("windows,events", rows_max=8_192)]

    def produce(stop: threading.Event) -> None:
        load.send(clicks(seed, RECORDS), per_s=RECORDS / (15.0 * KILLS / 4))
        load.done()

    with background(produce):
        for number in range(KILLS):
            if number == KILLS // 2:
                workers.append(rig.worker("windows,events", rows_max=8_192))
            victim = workers[number % len(workers)]
            rig.progress(windows, *workers)
            time.sleep(chance.uniform(0.2, 2.0))
            victim.kill()
            rig.faults["kill"] += 1
            rig.seen["kill on a live run"] += rig.folded(windows) < RECORDS
            victim.start()
    rig.drained("windows", windows)
    rig.drained("events", events)
    verdict = rig.verdict("windows", "ads", windows, ("minutes", "hours"))
    rig.report("kills windows", verdict, "kill on a live run")
    verdict = rig.verdict("events", "ads", events, ("events",))
    rig.report("kills events", verdict, "kill on a live run")


@pytest.mark.timeout(600 if FULL else 180)
def test_boards_survive_kills(rigs: Callable[..., Rig]) -> None:
    seed = 2
    rig = rigs(seed, kafka_config={"session.timeout.ms": "6000"})
    rig.create("boards")
    chance = random.Random(seed)
    load = Load(rig.settings.kafka.bootstrap_servers, rig.topic("boards"), rig.schema_ids("boards"))
    sink = rig.sink("boards")
    worker = rig.worker("boards", rows_max=4_096)

    def produce(stop: threading.Event) -> None:
        load.send(scores(seed, RECORDS), per_s=RECORDS / (12.0 * KILLS / 4))
        load.done()

    with background(produce):
        for _ in range(KILLS):
            rig.progress(sink, worker)
            time.sleep(chance.uniform(0.1, 1.0))
            worker.kill()
            rig.faults["kill"] += 1
            rig.seen["kill on a live run"] += rig.folded(sink) < RECORDS
            worker.start()
    rig.drained("boards", sink)
    verdict = rig.verdict("boards", "scores", sink, ("all", "periods"))
    rig.report("kills boards", verdict, "kill on a live run")
