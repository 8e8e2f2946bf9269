"""`headrace check`: everything about the code that needs no server."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import typer
from rich.console import Console

from infra.local.home import CHECKOUT
from streams.runtime.settings import home

app = typer.Typer()
BIN = Path(sys.executable).parent
CHECKS: dict[str, tuple[str, ...]] = {
    "lint": (str(BIN / "ruff"), "check", "."),
    "format": (str(BIN / "ruff"), "format", "--check", "."),
    "types": (sys.executable, "-m", "mypy"),
    "imports": (str(BIN / "lint-imports"),),
    "layout": (sys.executable, "-m", "pytest", "-q", "tests/repo"),
}
CRATE = ("--manifest-path", str(CHECKOUT / "streams" / "native" / "Cargo.toml"))
BUILT = (*CRATE, "--locked", "--no-default-features", "--target-dir", str(home() / "native"))
CRATE_CHECKS: dict[str, tuple[str, ...]] = {
    "rust format": ("cargo", "fmt", "--check", *CRATE),
    "rust lint": ("cargo", "clippy", *BUILT, "--all-targets", "--", "-D", "warnings"),
    "rust tests": ("cargo", "test", "--quiet", *BUILT),
}
"""Of the column reader, where cargo is there. Its core needs no Python."""


@app.command()
def check() -> None:
    """Run ruff, mypy, import-linter and the layout tests, and where cargo is there the checks of
    the column reader; fail if one of them does.

    Examples:
      headrace check

    """
    console = Console(stderr=True)
    failed = []
    crate = CRATE_CHECKS if shutil.which("cargo-clippy") else {}
    for name, command in (CHECKS | crate).items():
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
