"""Counts by rule and minute, under any cut, crash and repeat."""

from __future__ import annotations

import random
from collections import Counter

from schemas.limiter.events import RequestDecided
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.limiter import MINUTES
from streams.limiter import SYSTEM
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.limiter.rules import T

[DECIDED] = SYSTEM.projections
MINUTE_MS = 60_000


def memory(model: ReadModel) -> MemorySink:
    """An empty store."""
    return MemorySink(model, MemoryStore())


def log(rows: int, seed: int) -> list[RequestDecided]:
    """Decisions of half an hour with repeats, now and then one that is far too late."""
    chance = random.Random(seed)
    made = []
    for n in range(rows):
        behind = 3_600_000 if chance.random() < 0.05 else chance.randrange(30_000)
        verdicts = [
            {
                "rule_id": rule, "key": "k", "units": chance.randint(1, 3),
                "admitted": (admits := chance.random() < 0.7), "charged": admits,
                "shadow": rule == "c",
            }
            for rule in chance.sample("abc", chance.randint(0, 3))
        ]  # fmt: skip
        made.append(
            RequestDecided(
                request_id=str(n), principal=chance.choice("pq"), client="10.0.0.1", method="GET",
                route="/", cost=1, admitted=chance.random() < 0.7, degraded=not verdicts,
                verdicts=verdicts,  # type: ignore[arg-type]
                event_time=T + n * 1_800_000 // rows - behind,
            )
        )  # fmt: skip
        if chance.random() < 0.1:
            made.append(chance.choice(made[-20:]))
    return made


def test_counts_equal_a_recount() -> None:
    rows = log(400, 1)
    harness = Harness(DECIDED, memory(DECIDED.model))
    harness.send(*rows, append_ms=T + 3_600_000)
    harness.run([3, 50])
    late = {offset for offset, _ in harness.late}
    expected: Counter[tuple[object, ...]] = Counter()
    seen: set[str] = set()
    for offset, row in enumerate(rows):
        if offset in late or row.request_id in seen:
            continue
        seen.add(row.request_id)
        for one in row.verdicts:
            key = (one["rule_id"], row.event_time // MINUTE_MS * MINUTE_MS, one["shadow"])
            expected[*key, "admitted" if one["admitted"] else "refused"] += 1
            expected[*key, "units"] += one["units"] * one["charged"]
    found: Counter[tuple[object, ...]] = Counter()
    for row in harness.rows(MINUTES.name).to_dicts():
        for name in ("admitted", "refused", "units"):
            found[row["rule_id"], row["minute_ms"], row["shadow"], name] = row[name]
    assert +found == +expected
    assert late
    assert sum(harness.counts.values()) == len(rows)
    assert harness.counts["duplicate"] == len(rows) - len(late) - len(seen)


def test_crashes_and_cuts_change_nothing() -> None:
    for seed in range(4):
        rows = log(60, seed)
        assert_replay_deterministic(
            DECIDED, rows, seed, memory, append_ms=[T + 3_600_000] * len(rows)
        )
