"""Which tests may run beside each other when the suite runs in several processes.

A folder's tests share topics, ports or a worker, so a folder runs in one process, in order. Where
each file makes everything it uses, the file is the unit. The longest units begin first.
"""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent
APART = ("chaos", "runtime", "drivers", "schemas", "api")
"""Folders whose files share nothing."""
LONGEST_FIRST = ("infra", "notifications", "payments", "simulation", "telemetry", "chaos")


def unit(file: Path) -> str:
    """The tests that stay together: a folder of `tests`, or one file of it."""
    folder, *rest = file.relative_to(HERE).parts
    return f"{folder}/{'/'.join(rest)}" if folder in APART else folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Name the unit of every test for `--dist loadgroup`."""
    if not config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        return
    for item in items:
        item.add_marker(pytest.mark.xdist_group(unit(item.path)))

    def rank(item: pytest.Item) -> int:
        folder = item.path.relative_to(HERE).parts[0]
        return LONGEST_FIRST.index(folder) if folder in LONGEST_FIRST else len(LONGEST_FIRST)

    items.sort(key=rank)
