"""`bench all`: every benchmark at its default size, one after the other, then the page.

Each runs in a process of its own. One that fails is named at the end and does not stop the
others; the exit status is 1 then.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from infra.local.home import CHECKOUT
from tests.bench import report
from tests.bench.names import BENCHMARKS

Run = Callable[[str, Sequence[str]], int]


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run all; raises `SystemExit(1)` if one failed. `records` only makes them small for a try."""
    options = ["--runs", str(runs), *(["--records", str(records)] if records else [])]
    if failed := everything(options, _run):
        report.console.print(f"[red]failed:[/] {', '.join(failed)}")
        raise SystemExit(1)
    return {}


def everything(options: Sequence[str], run: Run) -> list[str]:
    """Run each, then the report; returns the names of those that failed."""
    names, failed, began = [*BENCHMARKS, "report"], [], time.monotonic()
    for n, name in enumerate(names, 1):
        report.console.rule(f"{n}/{len(names)} {name}   {_clock(time.monotonic() - began)}")
        if run(name, options) != 0:
            failed.append(name)
            report.console.print(f"[red]{name} failed[/]; the rest goes on")
    report.console.rule(f"{len(names) - len(failed)} of {len(names)} done")
    report.console.print(f"total time {_clock(time.monotonic() - began)}")
    return failed


def _run(name: str, options: Sequence[str]) -> int:
    command = [sys.executable, "-m", "tests.bench", name, *options]
    return subprocess.run(command, cwd=CHECKOUT, check=False).returncode


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 3_600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"
