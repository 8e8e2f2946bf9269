"""`headrace where`: every place that belongs to a system."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from infra.slice import page
from streams import catalog

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: [bold]headrace where leaderboard[/] · [bold]headrace where --write[/]"
)
def where(
    name: Annotated[
        str | None, typer.Argument(help="A system; all are listed if left out.")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the pages in infra/docs instead.")
    ] = False,
) -> None:
    """Show where a system lives and what flows through it, from its declaration."""
    console = Console()
    if write:
        for file in page.write():
            console.print(f"wrote {file.name}")
    elif name is None:
        for system in map(catalog.load, catalog.SYSTEMS):
            agents = ", ".join(one.name for one in system.projections)
            console.print(f"[bold]{system.name}[/]  {system.title}  ({agents})", soft_wrap=True)
    else:
        try:
            console.print(Markdown(page.page(name)))
        except catalog.UnknownSystem as error:
            raise typer.BadParameter(str(error)) from error
