"""`headrace test`: the servers that the tests need, then pytest."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from infra.local import DEFAULT, Stack
from infra.local.home import CHECKOUT

app = typer.Typer()
PARTS = (*DEFAULT, "cassandra", "s3")
WORKERS = 2


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(
    context: typer.Context,
    *,
    stack: Annotated[bool, typer.Option(help="Start the servers first.")] = True,
    workers: Annotated[
        int | None,
        typer.Option(min=0, help="Test files at once; 0: one process, the default with arguments."),
    ] = None,
) -> None:
    """Start kafka, registry and all stores, then run pytest with the arguments given.

    Without arguments the whole suite runs, two groups of test files at a time (see
    tests/conftest.py). The servers stay up for the next run; `headrace down` stops them.

    Examples:
      headrace test

      headrace test tests/runtime -k watermark -x

      headrace test --no-stack -m "not stack"

    """
    if stack:
        Stack().up(PARTS)
    at_once = workers if workers is not None else (0 if context.args else WORKERS)
    spread = ["-n", str(at_once), "--no-loadscope-reorder"] if at_once else []
    pytest = [sys.executable, "-m", "pytest", *spread, *context.args]
    raise typer.Exit(subprocess.run(pytest, cwd=CHECKOUT, check=False).returncode)
