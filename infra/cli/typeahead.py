"""`headrace typeahead`: build the snapshot that suggestions come from."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from infra import typeahead
from infra.error import StackError
from infra.typeahead import Options
from streams.runtime.settings import Settings
from streams.typeahead.ranking import HALF_LIFE_HOURS, PEOPLE_MIN

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def verbs() -> None:
    """Suggestions."""


@app.command(
    epilog="Examples: [bold]headrace typeahead build[/] · "
    "[bold]headrace typeahead build --every 15[/]"
)
def build(
    half_life_hours: Annotated[
        int, typer.Option(min=1, help="After so long a search weighs half.")
    ] = HALF_LIFE_HOURS,
    people_min: Annotated[
        int, typer.Option(min=1, help="What fewer people searched for is left out.")
    ] = PEOPLE_MIN,
    every: Annotated[
        float | None, typer.Option(min=0.01, help="Again after so many minutes, until Ctrl-C.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where more than half of the terms are gone.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the digest; nothing is swapped.")
    ] = False,
) -> None:
    """Build a snapshot from the counts and let it answer.

    Until it is in place, and if anything fails, the one before answers. The same counts, blocklist
    and options make the same digest, whenever and wherever it is built.
    """
    console = Console(highlight=False)
    settings, options = Settings.read(), Options(half_life_hours, people_min, force)
    while True:
        began = time.monotonic()
        try:
            made = typeahead.build(settings, options) if dry_run else None
            made = made or typeahead.publish(settings, options)[0]
        except StackError as error:
            if every is None:
                raise
            console.print(f"[red]error:[/] {error}")
        else:
            newest = datetime.fromtimestamp(made.as_of_ms / 1_000, UTC)
            console.print(
                f"{made.terms:,} terms ({made.blocked:,} blocked) as of {newest:%Y-%m-%d %H:00} "
                f"UTC, {len(made.file) / 2**20:.1f} MiB, {made.digest}, "
                f"{time.monotonic() - began:.1f} s"
            )
        if every is None:
            return
        time.sleep(every * 60)
