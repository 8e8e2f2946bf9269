"""A rig per test, ended whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.chaos.rig import Rig


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes rigs: `rigs(seed, needs=(...), kafka_config={...})`."""
    made: list[Rig] = []

    def make(seed: int, **options: object) -> Rig:
        made.append(Rig(tmp_path, seed, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for rig in made:
        rig.close()
