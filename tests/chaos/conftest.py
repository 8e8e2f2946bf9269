"""A rig per test, ended whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.processes import small_disk
from tests.chaos.rig import Rig


@pytest.fixture
def disks() -> Iterator[Callable[[Path, int], Path]]:
    """Makes small disks: `disks(at, size_mb)`; they outlive the rigs."""
    with ExitStack() as mounted:
        yield lambda at, size_mb: mounted.enter_context(small_disk(at, size_mb))


@pytest.fixture
def rigs(tmp_path: Path, disks: object) -> Iterator[Callable[..., Rig]]:
    """Makes rigs: `rigs(seed, needs=(...), kafka_config={...})`."""
    made: list[Rig] = []

    def make(seed: int, **options: object) -> Rig:
        made.append(Rig(tmp_path, seed, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for rig in made:
        rig.close()
