"""kill -9 under load: the read models equal an independent recount, whatever died when."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from streams.runtime.sink import Sink
from tests.chaos.load import Load, clicks, scores
from tests.chaos.processes import READY_S, Worker, background, until
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

RECORDS, KILLS = (1_000_000, 10) if FULL else (120_000, 4)
RATE = 10_000


def killed_under_load(
    rig: Rig, agent: str, rows: Iterator[Any], sink: Sink, workers: Callable[[int], list[Worker]]
) -> None:
    """Kill one worker after the other, each while it folds: a share of the load begins when all
    are folding, and the kill comes before its end.
    """
    chance = random.Random(rig.seed)
    load = Load(rig.settings.kafka.bootstrap_servers, rig.topic(agent), rig.schema_ids(agent))
    share, records = threading.Semaphore(1), RECORDS // (KILLS + 1)

    def produce(stop: threading.Event) -> None:
        for _ in range(KILLS + 1):
            share.acquire()
            load.send(islice(rows, records), per_s=RATE)
        load.done()

    with background(produce):
        for number in range(KILLS):
            running = workers(number)
            rig.progress(sink, *running)  # on what the one before left
            share.release()
            sent = records * (number + 1) + chance.randrange(records // 2)
            until(lambda sent=sent: load.sent > sent, READY_S, "the next share")
            victim = running[number % len(running)]
            rig.seen["kill with records in hand"] += rig.folded(sink) < load.sent
            victim.kill()
            rig.faults["kill"] += 1
            victim.start()


@pytest.mark.timeout(1_200 if FULL else 600)
def test_ads_survive_kills_and_rebalances(rigs: Callable[..., Rig]) -> None:
    rig = rigs(1, needs=("redis", "clickhouse"), kafka_config={"session.timeout.ms": "6000"})
    rig.create("windows", "events")
    windows, events = rig.sink("windows"), rig.sink("events")
    rig.worker("windows,events", rows_max=8_192)

    def workers(number: int) -> list[Worker]:
        """One, then two in the same groups."""
        if number == KILLS // 2:
            rig.worker("windows,events", rows_max=8_192)
        return rig.workers

    killed_under_load(rig, "windows", clicks(rig.seed, RECORDS), windows, workers)
    rig.drained("windows", windows)
    rig.drained("events", events)
    verdict = rig.verdict("windows", "ads", windows, ("minutes", "hours"))
    rig.report("T1 kills, windows", verdict, "kill with records in hand")
    verdict = rig.verdict("events", "ads", events, ("events",))
    rig.report("T1 kills, events", verdict, "kill with records in hand")


def test_boards_survive_kills(rigs: Callable[..., Rig]) -> None:
    rig = rigs(2, kafka_config={"session.timeout.ms": "6000"})
    rig.create("boards")
    sink = rig.sink("boards")
    rig.worker("boards", rows_max=4_096)
    killed_under_load(rig, "boards", scores(rig.seed, RECORDS), sink, lambda _: rig.workers)
    rig.drained("boards", sink)
    verdict = rig.verdict("boards", "scores", sink, ("all", "periods"))
    rig.report("T1 kills, boards", verdict, "kill with records in hand")
