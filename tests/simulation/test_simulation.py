"""Some fresh seeds, all that ever failed, and the faults that must be found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from tests.simulation.plants import PLANTS
from tests.simulation.run import quiet, run

CASES = [
    int(line.split()[0])
    for line in Path(__file__).with_name("cases.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
FRESH = range(1, 26)
FOUND_WITHIN = 60
"""Seeds that a planted fault may take until it is found."""
SOMETIMES = (
    "stale event refused",
    "derived record refused",
    "partition moved",
    "started over",
    "recovered from a snapshot",
    "died in the middle of a turn",
    "late row",
    "stale row",
    "answer compared",
    "owner compared",
    "snapshot compared",
)
"""What must have happened in the fresh runs, else they show nothing."""


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    quiet()
    yield
    structlog.reset_defaults()


def test_fresh_seeds() -> None:
    seen: Counter[str] = Counter()
    for seed in FRESH:
        result = run(seed, raises=True)
        seen += result.seen
    never = [name for name in SOMETIMES if not seen[name]]
    assert not never, f"never happened: {never}"


@pytest.mark.parametrize("seed", CASES)
def test_seeds_that_failed_once(seed: int) -> None:
    run(seed, raises=True)


def test_the_same_seed_does_the_same() -> None:
    first, second = run(7), run(7)
    assert first == second
    assert first.steps > 1_000


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_faults_are_found(plant: str) -> None:
    """And not by chance alone: the same seed without the fault is all right."""
    for seed in range(1, FOUND_WITHIN):
        with PLANTS[plant]():
            failed = run(seed).failure
        if failed:
            run(seed, raises=True)
            return
    raise AssertionError(f"{plant} was not found in {FOUND_WITHIN} seeds")
