"""`headrace new`: a new system, complete but for its rules."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from infra.slice import begin
from infra.slice.names import BadName, Names

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: [bold]headrace new likes[/] · "
    "[bold]headrace new likes --event PostLiked --dry-run[/]"
)
def new(
    name: Annotated[str, typer.Argument(help="The system, in snake_case: url_shortener.")],
    event: Annotated[
        str | None,
        typer.Option(help="What happens in it, past tense.", show_default="<Name>Recorded"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show which files would be written.")
    ] = False,
) -> None:
    """Write a new system: schema, fold, table, routes, dashboard, page, and tests.

    It runs as it is and counts events by subject. One of its tests fails, on purpose, and says
    which rule to write first. Overwrites nothing.
    """
    try:
        made = begin.planned(Names.of(name, event))
    except BadName as error:
        raise typer.BadParameter(str(error)) from error
    if not dry_run:
        begin.write(made)
    console = Console(highlight=False, soft_wrap=True)
    for path in sorted((*made.new, *made.derived)):
        console.print(f"+ {path}")
    for path in sorted((*made.changed, *begin.REMADE)):
        console.print(f"~ {path}")
    if not dry_run:
        console.print(NEXT.format(name=name, record=made.names.record))


NEXT = """
Next:
  [bold]headrace test --no-stack tests/{name}[/]
      one test fails and says which rule to write first, in streams/{name}.py
  [bold]schemas/{name}/{record}.v1.avsc[/]
      say what happens; then: headrace schemas generate
  [bold]headrace where {name}[/]
      every place of the system; --write after a change, for infra/docs
  [bold]infra/demo/scenarios.py[/]
      which real data goes through {name}, once its rules are written
  [bold]headrace check[/]
      lint, types, imports and layout"""
