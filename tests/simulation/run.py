"""One seed, one run."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import structlog

from tests.simulation import oracle
from tests.simulation.town import Town
from tests.simulation.world import EPOCH_MS


@dataclass
class Result:
    """What came of a run; `failure` is empty when every promise held."""

    seed: int
    failure: str = ""
    steps: int = 0
    virtual_ms: int = 0
    records: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)


def run(seed: int, *, raises: bool = False) -> Result:
    """Run one seed. The same seed does the same, to the last byte."""
    random.seed(seed)  # patience spreads its pauses
    town = Town(seed)
    result = Result(seed)
    try:
        town.run()
        oracle.check(town)
    except Exception as error:
        if raises:
            raise
        result.failure = f"{type(error).__name__}: {error}"[:2_000]
    world = town.world
    result.steps, result.virtual_ms = world.steps, world.now_ms - EPOCH_MS
    result.records = sum(map(len, town.broker.logs.values()))
    result.faults, result.seen = world.faults, world.seen
    return result


def quiet() -> None:
    """Nobody reads the log of a simulation."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
