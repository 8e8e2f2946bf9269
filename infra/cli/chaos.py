"""`headrace chaos`: break the real stack on purpose, and compare with an independent recount."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.local import Stack
from infra.local.home import CHECKOUT

app = typer.Typer(add_completion=False)

PARTS = ("kafka", "registry", "redis", "clickhouse", "cassandra", "s3")

TESTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "T1": (
        "kill -9 of workers under load",
        ("tests/chaos/test_kills.py", "tests/chaos/test_lists.py"),
    ),
    "T2": ("kill -9 of the broker", ("tests/chaos/test_broker.py",)),
    "T3": ("stores down or killed", ("tests/chaos/test_outages.py", "tests/chaos/test_stores.py")),
    "T4": ("lost replies of stores", ("tests/chaos/test_outages.py", "tests/chaos/test_stores.py")),
    "T5": (
        "paused workers that come back",
        ("tests/chaos/test_outages.py", "tests/chaos/test_ledger.py"),
    ),
    "T7": ("full disks", ("tests/chaos/test_broker.py",)),
    "T8": ("storm of rebalances", ("tests/chaos/test_groups.py",)),
    "T9": ("repeated, shuffled, late records", ("tests/chaos/test_delivery.py",)),
    "T10": ("idle partitions and wrong clocks", ("tests/chaos/test_delivery.py",)),
    "T11": ("records that are poison", ("tests/chaos/test_poison.py",)),
    "T12": ("registry down", ("tests/chaos/test_outages.py",)),
    "T13": ("schema versions", ("tests/chaos/test_log_shape.py", "tests/schemas")),
    "T14": ("stores emptied, rebuilds", ("tests/chaos/test_rebuild.py",)),
    "T15": ("the log changes its shape", ("tests/chaos/test_log_shape.py",)),
    "T17": ("a ledger under kills", ("tests/chaos/test_ledger.py",)),
    "T19": (
        "one key sent often, and deaths before the reply",
        ("tests/chaos/test_idempotency.py",),
    ),
    "T23": ("what clients saw, against the order of the log", ("tests/chaos/test_lists.py",)),
}
"""What can be broken, and the files with the tests of it. The numbers name the kinds of fault."""


@app.command(
    epilog="Examples: [bold]headrace chaos[/] · headrace chaos T1 T5 · headrace chaos T2 --full · "
    "headrace chaos --list"
)
def chaos(
    which: Annotated[
        list[str] | None, typer.Argument(help="Kinds of fault; all by default.")
    ] = None,
    *,
    full: Annotated[
        bool, typer.Option("--full", help="The long runs: hours, not minutes.")
    ] = False,
    show: Annotated[bool, typer.Option("--list", help="List the kinds of fault.")] = False,
    stack: Annotated[bool, typer.Option(help="Start the servers first.")] = True,
) -> None:
    """Run fault tests on the real stack and print one line for each run.

    A line names the seed, what was done and how often, and what came of it; `sometimes` counts the
    situations that the run is about, and a run in which one of them never happened fails.
    """
    if show:
        _list()
        return
    unknown = sorted(set(which or ()) - TESTS.keys())
    if unknown:
        raise typer.BadParameter(f"no {', '.join(unknown)}; there are {', '.join(TESTS)}")
    if stack:
        Stack().up(PARTS)
    files = list(dict.fromkeys(file for kind in which or TESTS for file in TESTS[kind][1]))
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        environment = {**os.environ, "CHAOS_REPORT": str(report), "CHAOS_FULL": str(int(full))}
        command = [sys.executable, "-m", "pytest", "-q", *files]
        ended = subprocess.run(command, cwd=CHECKOUT, env=environment, check=False)
        lines = report.read_text().splitlines() if report.is_file() else []
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        name, _, facts = line.partition(": ")
        console.print(f"[cyan]{name}[/] {facts}")
    raise typer.Exit(ended.returncode)


def _list() -> None:
    table = Table.grid(padding=(0, 2))
    for name, (text, files) in TESTS.items():
        table.add_row(f"[cyan]{name}[/]", text, f"[dim]{' '.join(files)}[/]")
    Console().print(table)
