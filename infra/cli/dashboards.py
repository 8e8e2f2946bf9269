"""`headrace dashboards`: write the Grafana dashboards from code, or check the committed ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="dashboards", help="Grafana dashboards, generated from code.", no_args_is_help=True
)

Folder = Annotated[
    Path | None,
    typer.Option(help="Folder of the JSON files.", show_default="infra/grafana/dashboards"),
]


@app.command()
def generate(folder: Folder = None) -> None:
    """Write the dashboards as JSON, and delete files that no dashboard stands for.

    Example: `headrace dashboards generate`
    """
    # The SDK is a development dependency: only these two commands may need it.
    from infra.grafana import generate as dashboards

    changed = dashboards.generate(folder or dashboards.FOLDER)
    for path in changed:
        typer.echo(f"wrote {path.name}" if path.exists() else f"deleted {path.name}")
    if not changed:
        typer.echo("all dashboards are up to date")


@app.command()
def check(folder: Folder = None) -> None:
    """Exit with 1 and name the files where the committed dashboards differ from the code.

    Example: `headrace dashboards check`
    """
    from infra.grafana import generate as dashboards

    stale = dashboards.stale(folder or dashboards.FOLDER)
    if stale:
        typer.echo(f"out of date: {', '.join(stale)}; run: headrace dashboards generate", err=True)
        raise typer.Exit(1)
    typer.echo("all dashboards are up to date")
