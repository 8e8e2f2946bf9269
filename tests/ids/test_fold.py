"""Leases and ranges as they are stored: the same, wherever the log is cut."""

from __future__ import annotations

import random

import pytest

from schemas.ids.events import LeaseChanged, RangeAllocated
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.ids import SYSTEM
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic

(PROJECTION,) = SYSTEM.projections


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


def log(seed: int) -> list[object]:
    chance = random.Random(seed)
    rows: list[object] = []
    for n in range(60):
        worker, number = chance.randrange(3), chance.randrange(4)
        change = chance.choice(["leased", "renewed", "ended"])
        rows.append(LeaseChanged("main", worker, f"l{number}", "h", change, n, n + 10, n))
        rows.append(RangeAllocated("main", "h", n * 10, 10, n))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_replay_is_deterministic(seed: int) -> None:
    assert_replay_deterministic(PROJECTION, log(seed), seed, memory)


def test_a_lease_stands_as_its_last_event_says() -> None:
    harness = Harness(PROJECTION, memory(PROJECTION.model))
    rows = log(1)
    harness.send(*rows)
    harness.run()
    last = {(r.worker, r.lease_id): r for r in rows if isinstance(r, LeaseChanged)}
    stored = {(r["worker"], r["lease_id"]): r for r in harness.rows("leases").to_dicts()}
    assert stored.keys() == last.keys()
    for key, row in last.items():
        assert (stored[key]["change"], stored[key]["until_ms"]) == (row.change, row.until_ms)
    assert harness.rows("ranges")["first"].to_list() == [n * 10 for n in range(60)]
