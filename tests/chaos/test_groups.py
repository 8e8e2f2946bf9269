"""Groups and topics that change under a worker, and workers that leave in an orderly way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from streams.runtime.supervisor import EXIT_DECISION
from tests.chaos.load import Load, clicks
from tests.chaos.processes import Worker, background, until
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

STORM_S = 120 if FULL else 20
RATE = 4_000
ROWS_MAX = 200 * RATE


def load_of(rig: Rig) -> Load:
    return Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )


def assigned(worker: Worker, *, starts: int) -> dict[int, int]:
    """Where the worker began to read at its so-manieth start, by partition."""

    def placed(line: str) -> bool:
        return '"at": {"' in line

    def found() -> list[dict[str, int]]:
        lines = [
            json.loads(line) for line in worker.log.read_text().splitlines() if '"at": {"' in line
        ]
        return [line["at"] for line in lines if line["event"] == "assigned"]

    until(lambda: len(found()) >= starts, 60, f"start {starts}")
    return {int(partition): offset for partition, offset in found()[starts - 1].items()}


def test_a_storm_of_rebalances(rigs: Callable[..., Rig]) -> None:
    rig = rigs(11, kafka_config={"session.timeout.ms": "6000", "heartbeat.interval.ms": "500"})
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    stays, comes = rig.worker("windows", rows_max=1_000), rig.worker("windows", rows_max=1_000)

    with background(load.steady(clicks(rig.seed, ROWS_MAX), RATE)):
        rig.progress(sink, stays)
        ends = time.monotonic() + STORM_S
        while time.monotonic() < ends:
            until(comes.ready, 60, "the second worker joins")
            time.sleep(2.0)
            before = stays.said("assigned")
            assert comes.end() == 0
            rig.faults["leave"] += 1
            time.sleep(2.0)
            comes.start()
            rig.faults["join"] += 1
            rig.seen["rebalanced"] += stays.said("assigned") > before
            rig.progress(sink, stays)
    rig.drained("windows", sink)
    rig.seen["revoked"] = stays.said("revoked")
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.report("T8 storm", verdict, "revoked", "rebalanced")


def test_a_topic_that_was_made_again_stops_the_worker(rigs: Callable[..., Rig]) -> None:
    rig = rigs(12)
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    worker = rig.supervised("windows")
    load.send(clicks(rig.seed, 2_000))
    load.done()
    rig.drained("windows", sink)
    positions = rig.positions(sink)
    rig.delete_topics()
    until(lambda: rig.topic("windows").name not in rig.admin.list_topics().topics, 30, "deleted")
    rig.create("windows")
    rig.faults["topic re-created"] += 1
    load = load_of(rig)
    load.send(clicks(rig.seed + 1, 6_000))
    load.done()
    assert worker.process.wait(60) == EXIT_DECISION
    rig.seen["said why"] = worker.said("was re-created") + worker.said("does not exist")
    assert rig.positions(sink) == positions, "nothing of the new topic is stored"
    rig.tell(
        f"T15 topic re-created: seed={rig.seed} faults={dict(rig.faults)} silent_skips=0 "
        f"sometimes={dict(rig.seen)}"
    )
    assert rig.seen["said why"]


def test_sigterm_drains(rigs: Callable[..., Rig]) -> None:
    rig = rigs(13)
    rig.create("windows")
    sink, load = rig.sink("windows"), load_of(rig)
    worker = rig.worker("windows", rows_max=1_000)
    with background(load.steady(clicks(rig.seed, ROWS_MAX), RATE)):
        assigned(worker, starts=1)
        for _ in range(3):
            rig.progress(sink, worker)
            assert worker.end(20) == 0, worker.tail()
            rig.faults["sigterm"] += 1
            stored = rig.positions(sink)
            rig.seen["stopped under load"] += rig.folded(sink) < load.sent
            worker.start()
            begins = assigned(worker, starts=rig.faults["sigterm"] + 1)
            lows = {p: stored[p].low_offset if p in stored else 0 for p in begins}
            assert begins == lows, "what is read again begins at the low offset"
    rig.drained("windows", sink)
    assert not worker.said("Traceback"), worker.tail(60)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.report("T8 orderly stops", verdict, "stopped under load")
