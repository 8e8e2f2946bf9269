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


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def test(
    context: typer.Context,
    stack: Annotated[bool, typer.Option(help="Start the servers first.")] = True,
) -> None:
    """Start kafka, registry and all stores, then run pytest with the arguments given.

    The servers stay up for the next run; `headrace down` stops them.

    Examples:
      headrace test

      headrace test tests/runtime -k watermark -x

      headrace test --no-stack -m "not stack"

    """
    if stack:
        Stack().up(PARTS)
    pytest = [sys.executable, "-m", "pytest", *context.args]
    raise typer.Exit(subprocess.run(pytest, cwd=CHECKOUT, check=False).returncode)
