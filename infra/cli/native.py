"""`headrace native`: the column reader, built here or as a wheel for elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from infra.local.home import CHECKOUT
from infra.local.native import NotBuilt, build
from streams.runtime.native import why_not

app = typer.Typer(add_completion=False)
CRATE = CHECKOUT / "streams" / "native"


@app.command(
    epilog="Examples: [bold]headrace native[/] · headrace native --check · "
    "headrace native --wheel dist"
)
def native(
    wheel: Annotated[
        Path | None, typer.Option(help="Make a wheel in this folder instead (with maturin).")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Say whether it can be used.")] = False,
) -> None:
    """Build the column reader, the part of the lane that is written in Rust.

    ./dev does this by itself where cargo is there and the crate has changed; without it the lane
    reads in Python, with the same results. HEADRACE_READER=auto|native|python chooses.

    The wheel is what `maturin build --release` makes; it serves every Python from 3.11 on.
    """
    if check:
        reason = why_not()
        typer.echo(f"reads in Python: {reason}" if reason else "reads in columns")
        raise typer.Exit(1 if reason else 0)
    if wheel is not None:
        uv = Path(sys.executable).with_name("uv")
        command = (str(uv), "build", "--wheel", "--out-dir", str(wheel.resolve()), str(CRATE))
        raise typer.Exit(subprocess.run(command, check=False).returncode)
    try:
        typer.echo(build(CHECKOUT, Path(sys.prefix)))
    except NotBuilt as error:
        typer.echo(f"not built: {error}", err=True)
        raise typer.Exit(1) from error
