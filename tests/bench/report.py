"""Result files and tables: every figure with machine, versions and load."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl
import psutil
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
_PACKAGES = ("confluent-kafka", "faust-streaming", "aiokafka", "fastavro", "polars", "redis")

console = Console(highlight=False)


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in _PACKAGES},
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def save(name: str, result: dict[str, Any]) -> Path:
    """Write a result as `results/<name>.json` and say where."""
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{name}.json"
    measured = datetime.now(UTC).isoformat(timespec="seconds")
    content = {"benchmark": name, "measured": measured, "machine": machine(), **result}
    file.write_text(json.dumps(content, indent=2) + "\n")
    console.print(f"[dim]{file}[/]")
    return file


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table; the first column names the row."""
    shown = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        shown.add_column(column, justify="left" if n == 0 else "right")
    for row in rows:
        shown.add_row(*(_shown(cell) for cell in row))
    console.print(shown)


def _shown(cell: object) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:,.2f}" if abs(cell) < 1_000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else str(cell)


def counted(
    title: str, total: int, frames: Iterable[tuple[str, pl.DataFrame]]
) -> Iterator[tuple[str, pl.DataFrame]]:
    """The same frames by record name, with a progress bar of their rows while they are taken."""
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=total)
        for record, frame in frames:
            yield record, frame
            bar.advance(task, frame.height)
