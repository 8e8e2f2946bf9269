"""Which tests may run beside each other when the suite runs in several processes.

A folder's tests share topics, ports or a worker, so a folder runs in one process, in order. Where
each file makes everything it uses, the file is the unit. The longest units begin first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

HERE = Path(__file__).parent
APART = ("chaos", "runtime", "drivers", "schemas", "api")
"""Folders whose files share nothing."""
LONGEST_FIRST = ("infra", "notifications", "payments", "simulation", "telemetry", "chaos")


def unit(file: Path) -> str:
    """The tests that stay together: a folder of `tests`, or one file of it."""
    folder, *rest = file.relative_to(HERE).parts
    return f"{folder}/{'/'.join(rest)}" if folder in APART else folder


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives whole units to the processes, in order."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(HERE.parent / nodeid.split("::", maxsplit=1)[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> UnitScheduling:
    """What `-n` of the suite means."""
    return UnitScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: what begins last should be short."""

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(HERE).parts[0]
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=rank)
