"""`bench report`: the page of all benchmarks from the result files that there are."""

from __future__ import annotations

from typing import Any

from tests.bench import report
from tests.bench.pages.page import write


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Write the page; nothing is measured, so neither argument matters."""
    files = write()
    report.console.print(f"wrote {files[-1]} and {len(files) - 1} plots")
    return {}
