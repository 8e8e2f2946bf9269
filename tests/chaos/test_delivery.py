"""Traffic that repeats, wanders, falls silent and lies about time: counts stay exact."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from streams.runtime.kafka import partition_of
from tests.chaos.load import DAY_MS, HOUR_MS, Load, clicks
from tests.chaos.rig import FULL, Rig

pytestmark = [pytest.mark.stack, pytest.mark.slow]

RECORDS = 300_000 if FULL else 40_000
Row = tuple[str, str, dict[str, Any]]


def chaotic(seed: int, count: int) -> Iterator[Row]:
    """10 % repeats, shuffled within a thousand, 5 % hours late, half of those beyond the grace."""
    chance = random.Random(seed)
    rows = clicks(seed, count, hostile=False)
    while block := list(islice(rows, 1_000)):
        for index, (name, key, row) in enumerate(block):
            if chance.random() < 0.05:
                early = chance.choice((50 * 60_000, 3 * HOUR_MS))
                block[index] = (name, key, row | {"event_time": row["event_time"] - early})
        block += chance.choices(block, k=100)
        chance.shuffle(block)
        yield from block


def letters(rig: Rig, agent: str) -> tuple[int, int]:
    """Records in the dead letter topic and in the late output."""
    topic = rig.topic(agent)
    return sum(rig.ends(topic.dead_letters).values()), sum(rig.ends(topic.late).values())


def test_repeated_shuffled_and_late(rigs: Callable[..., Rig]) -> None:
    rig = rigs(30)
    rig.create("windows")
    sink = rig.sink("windows")
    worker = rig.worker("windows", rows_max=2_000)
    load = Load(
        rig.settings.kafka.bootstrap_servers, rig.topic("windows"), rig.schema_ids("windows")
    )
    rows = chaotic(rig.seed, RECORDS)
    for _ in range(4):  # with a death in the middle of each quarter
        load.send(islice(rows, RECORDS * 11 // 40), per_s=20_000)
        worker.kill()
        rig.faults["kill"] += 1
        worker.start()
    load.send(rows)
    load.done()
    rig.drained("windows", sink)
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    fates = verdict.fates
    for fate in ("duplicate", "late"):
        rig.seen[fate] = fates[fate]
    dead, late = letters(rig, "windows")
    assert (
        fates["applied"]
        + fates["duplicate"]
        + fates["late"]
        + fates["quarantined"]
        + fates["filtered"]
        == load.sent
        == verdict.records
    )
    assert late >= fates["late"] and dead >= fates["quarantined"], "each has its letter"
    rig.report("T9 delivery", verdict, "duplicate", "late", late_output=late)


def test_idle_partitions_a_row_from_tomorrow_and_old_rows_at_wake_up(
    rigs: Callable[..., Rig],
) -> None:
    rig = rigs(31)
    rig.create("windows")
    sink, topic = rig.sink("windows"), rig.topic("windows")
    rig.worker("windows", rows_max=500)
    load = Load(rig.settings.kafka.bootstrap_servers, topic, rig.schema_ids("windows"))
    marks: dict[int, int] = {}

    def phase(name: str, partitions: set[int], seed: int, shift_ms: int = 0) -> None:
        """Traffic on some partitions only; watermarks never go back."""
        for kind, key, row in clicks(seed, 8_000, HOUR_MS, hostile=False):
            if partition_of(key, topic.partitions) in partitions:
                moved = row | {"event_time": row["event_time"] + shift_ms}
                load.raw(key.encode(), load.encode(kind, moved))
        load.done()
        rig.drained("windows", sink)
        for partition, position in rig.positions(sink).items():
            assert position.watermark_ms >= marks.get(partition, position.watermark_ms)
            marks[partition] = position.watermark_ms
        rig.faults[name] += 1

    phase("one partition only", {0}, 1, -HOUR_MS)
    (kind, key, row), *_ = (r for r in clicks(9, 100) if partition_of(r[1], topic.partitions) == 0)
    tomorrow = row | {"event_time": int(time.time() * 1000) + DAY_MS}
    load.raw(key.encode(), load.encode(kind, tomorrow), [("poison", b"ahead of the log")])
    phase("rows after a row from tomorrow", {0}, 2)
    phase("a partition wakes with old rows", {1}, 3, -20 * HOUR_MS)
    phase("all", set(range(topic.partitions)), 4)
    silent = time.monotonic() + 3
    while time.monotonic() < silent:
        time.sleep(0.2)
    assert {p: one.watermark_ms for p, one in rig.positions(sink).items()} == marks
    rig.faults["all silent"] += 1
    verdict = rig.verdict("windows", "ads", sink, ("minutes", "hours"))
    rig.seen["ahead of the log"] = verdict.fates["quarantined"]
    assert verdict.fates["late"] == 0, "neither the row from tomorrow nor the silence made any"
    rig.report("T10 watermark", verdict, "ahead of the log", watermark_regressions=0)
