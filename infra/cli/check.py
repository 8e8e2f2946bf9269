"""`headrace check`: everything about the code that needs no server."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import typer
from rich.console import Console

from infra.local.home import CHECKOUT

app = typer.Typer()
BIN = Path(sys.executable).parent
CHECKS: dict[str, tuple[str, ...]] = {
    "lint": (str(BIN / "ruff"), "check", "."),
    "format": (str(BIN / "ruff"), "format", "--check", "."),
    "types": (sys.executable, "-m", "mypy"),
    "imports": (str(BIN / "lint-imports"),),
    "layout": (sys.executable, "-m", "pytest", "-q", "tests/repo"),
}


@app.command()
def check() -> None:
    """Run ruff, mypy, import-linter and the layout tests; fail if one of them does.

    Examples:
      headrace check

    """
    console = Console(stderr=True)
    failed = []
    for name, command in CHECKS.items():
        began = time.monotonic()
        done = subprocess.run(command, cwd=CHECKOUT, check=False, capture_output=True, text=True)
        took = f"{time.monotonic() - began:.1f} s"
        if done.returncode:
            failed.append(name)
            console.print(f"[red]failed[/] {name} ({took})", highlight=False)
            typer.echo(done.stdout + done.stderr)
        else:
            console.print(f"[green]ok[/]     {name} ({took})", highlight=False)
    if failed:
        raise typer.Exit(1)
