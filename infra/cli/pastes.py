"""`headrace pastes`: what the object store keeps and no paste needs."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import typer
from rich.console import Console

from connectors.asking import NoVerdict
from infra.error import StackError
from infra.pastes import reconcile as reconciler
from streams.runtime.settings import Settings
from streams.runtime.sink import SinkError

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def pastes() -> None:
    """What the object store keeps and no paste needs."""


@app.command(epilog="Example: headrace pastes reconcile --dry-run")
def reconcile(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only count what the table does not need.")
    ] = False,
) -> None:
    """Drop the objects of pastes that were never made. Harmless to repeat; for a cron job.

    An object is left alone for its first hour, and for as long as the owner of its content says
    that a paste needs it. The worker of pastes has to run.
    """
    now_ms = time.time_ns() // 1_000_000
    try:
        found = asyncio.run(reconciler.run(Settings.read(), now_ms, dry_run=dry_run))
    except (SinkError, NoVerdict) as error:
        raise StackError(f"not finished, and harmless to begin again: {error}") from error
    Console(highlight=False).print(
        f"{found.stored:,} objects: {found.needed:,} needed, {found.young:,} younger than an hour, "
        f"{found.unknown:,} not ours; {found.dropped:,} "
        f"{'would be looked into' if dry_run else 'dropped'}."
    )
