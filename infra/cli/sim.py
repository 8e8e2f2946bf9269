"""`headrace sim`: the runtime's core under seeded faults, thousands of runs a session."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import typer

from infra.local.home import CHECKOUT

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: [bold]headrace sim[/] · headrace sim --seeds 10000 · "
    "headrace sim --seed 4711 · headrace sim --plant fence_off --seeds 50"
)
def sim(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="How many runs.")] = 1_000,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 1,
    seed: Annotated[int | None, typer.Option(help="Run this one, and show its traceback.")] = None,
    plant: Annotated[str, typer.Option(help="Plant a fault that must be found.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Runs at a time.")] = 2,
) -> None:
    """Run deciders, derivations and read models in one thread on simulated time.

    A seed decides everything: what clients ask, which records, answers and commits are lost or
    late, who is killed, paused or deposed. After the faults everything must settle and every
    promise is checked against an oracle that reads the logs record by record.
    """
    command = [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds)]
    command += ["--first", str(first), "--processes", str(processes), "--plant", plant]
    command += ["--seed", str(seed)] if seed is not None else []
    raise typer.Exit(subprocess.run(command, cwd=CHECKOUT, check=False).returncode)
