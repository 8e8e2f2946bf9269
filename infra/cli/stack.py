"""`headrace up`, `down`, `status`, `logs`, `clean`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.local import DEFAULT, PARTS, Stack, StackError, State
from infra.local.home import Home

up = typer.Typer()
down = typer.Typer()
status = typer.Typer()
logs = typer.Typer()
clean = typer.Typer()

Parts = Annotated[list[str] | None, typer.Argument(metavar="[PART]…", help=", ".join(PARTS))]
MEGABYTE = 1_000_000


@up.command()
def up_(
    parts: Parts = None,
    native: Annotated[bool, typer.Option(help="Do not use Docker even if it answers.")] = False,
) -> None:
    """Start servers and wait until they work. What runs already is left alone.

    Without arguments: kafka, registry, redis, clickhouse. An address set in the environment
    (HEADRACE_KAFKA__BOOTSTRAP_SERVERS, …) is used if something answers there; else, on this
    machine, the server is started at exactly that port.

    Examples:
      headrace up

      headrace up kafka cassandra s3

      HEADRACE_REDIS__URL=redis://:secret@127.0.0.1:7000/0 headrace up redis

    """
    Stack(way="native" if native else None).up(parts or DEFAULT)


@down.command()
def down_(parts: Parts = None) -> None:
    """Stop the servers that `headrace up` started here, and no others. Data stays.

    Examples:
      headrace down

      headrace down registry

    """
    stopped = Stack().down(parts)
    Console(stderr=True).print(f"stopped: {', '.join(stopped)}" if stopped else "nothing ran")


@status.command()
def status_() -> None:
    """Show each part's address, pid, state and memory.

    Examples:
      headrace status

    """
    Console().print(table(Stack().status()))


def table(states: list[State]) -> Table:
    """The states as a table."""
    shown = Table("part", "address", "pid", "state", "memory", box=None, header_style="bold")
    colours = {"ready": "green", "given": "green", "stopped": "dim"}
    for state in states:
        memory = "" if state.memory_bytes is None else f"{state.memory_bytes / MEGABYTE:.0f} MB"
        colour = colours.get(state.state, "red")
        pid = "" if state.pid is None else str(state.pid)
        shown.add_row(state.part, state.address, pid, f"[{colour}]{state.state}[/]", memory)
    return shown


@logs.command()
def logs_(
    part: Annotated[str, typer.Argument(help=", ".join(PARTS))],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many to show.")] = 100,
) -> None:
    """Show the last lines that a server wrote.

    Examples:
      headrace logs kafka

      headrace logs registry -f -n 20

    """
    stack = Stack()
    if part not in PARTS:
        raise StackError(f"no such part: {part}; there are {', '.join(PARTS)}")
    for line in stack.logs(part, lines):
        typer.echo(line)
    if follow:
        _follow(stack.home.log(part))


def _follow(file: Path) -> None:
    """Print what is appended, also after the log has been rotated. Ends with Ctrl-C."""
    at = file.stat().st_size if file.exists() else 0
    while True:
        size = file.stat().st_size if file.exists() else 0
        if size < at:
            at = 0
        if size > at:
            with file.open("rb") as log:
                log.seek(at)
                fresh = log.read()
            at += len(fresh)
            typer.echo(fresh.decode(errors="replace"), nl=False)
        time.sleep(0.2)


@clean.command()
def clean_(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Stop everything and delete the local folder: data, logs, downloads, environment.

    Examples:
      headrace clean

      headrace clean --yes

    """
    home = Home.default()
    console = Console(stderr=True)
    console.print(f"This deletes {home.root}:")
    for folder in sorted(home.root.iterdir()) if home.root.exists() else []:
        if folder.is_dir():
            console.print(f"  {folder.name:<6} {_size(folder) / MEGABYTE:8.0f} MB")
    if not yes:
        typer.confirm("Delete?", abort=True)
    Stack(home=home).clean()
    console.print("deleted")


def _size(folder: Path) -> int:
    return sum(f.lstat().st_size for f in folder.rglob("*") if f.is_file())
