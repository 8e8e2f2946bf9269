"""`headrace schemas`: list and show schemas, generate code from them, check for breaks."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from infra.cli.explain import explained, settings
from schemas import asyncapi as asyncapi_document
from schemas import check as checks
from schemas.catalog import SYSTEMS, topics
from schemas.examples import read_example
from schemas.generate import generate as generate_events
from schemas.generate.declaration import SchemaFile, declared
from schemas.registry import RegistryClient
from streams.runtime.decider.records import CONTROL_RECORDS

app = typer.Typer(no_args_is_help=True, help="Avro schemas: list, show, check, generate.")

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command(
    name="list",
    epilog="Examples: [bold]headrace schemas list[/] · headrace schemas list --json",
)
def list_schemas(as_json: Json = False) -> None:
    """All records, their newest version and the topic that carries them."""
    with explained():
        rows = [_row(subject, file) for subject, file in _files().items()]
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(Column("record", no_wrap=True), "version", "topic", "what", box=SIMPLE)
    for row in rows:
        short = str(row["record"]).removeprefix("headrace.")
        table.add_row(short, f"v{row['version']}", row["topic"], escape(row["doc"]))
    Console().print(table)


@app.command(
    epilog="Examples: [bold]headrace schemas show AdClicked[/] · "
    "headrace schemas show headrace.ads.AdClicked --example",
)
def show(
    record: Annotated[str, typer.Argument(help="A record, with or without its namespace.")],
    example: Annotated[bool, typer.Option("--example", help="Show an example instead.")] = False,
) -> None:
    """One record's newest schema, or an example of it."""
    with explained():
        found = {f.path: f for f in _files().values() if record in {f.name, f.fullname}}
    if not found:
        known = ", ".join(sorted({f.name for f in _files().values()}))
        raise typer.BadParameter(f"no record {record}; there is {known}")
    for file in found.values():
        content: Any = file.schema
        if example:
            content = read_example(file, next(file.examples()))
        Console().print_json(json.dumps(content), ensure_ascii=False)


@app.command(epilog="Example: [bold]headrace schemas generate[/]")
def generate() -> None:
    """Write each system's events.py and the AsyncAPI document from the declarations."""
    with explained():
        written = [str(path) for path in generate_events(SYSTEMS)]
        # The document reads the generated modules, so it comes after them.
        if asyncapi_document.write(SYSTEMS):
            written.append(str(asyncapi_document.DOCUMENT))
    for path in written:
        typer.echo(f"written: {path}")
    if not written:
        typer.echo("up to date")


@app.command(
    epilog="Examples: [bold]headrace schemas asyncapi[/] > asyncapi.json",
)
def asyncapi() -> None:
    """Print the AsyncAPI 3.0 document of all topics."""
    with explained():
        typer.echo(asyncapi_document.text(SYSTEMS), nl=False)


@app.command(
    epilog="Examples: [bold]headrace schemas check[/] · headrace schemas check --against v1.2.0 · "
    "headrace schemas check --no-registry. Exit code 1 where something breaks.",
)
def check(
    against: Annotated[
        str, typer.Option("--against", help="The git revision to compare with.")
    ] = "HEAD",
    registry: Annotated[
        bool, typer.Option(help="Compare with the versions the registry holds, too.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Find breaks: between versions, with a commit, with the registry; and stale files.

    Every version must read every other (FULL_TRANSITIVE), since the log is replayed.
    """
    with explained():
        found = [
            *checks.check_generated(SYSTEMS),
            *checks.check_examples(SYSTEMS),
            *checks.check_versions(SYSTEMS),
            *checks.check_git(SYSTEMS, against),
        ]
        if registry:
            with RegistryClient(settings().registry) as client:
                found += checks.check_registry(topics().values(), client)
    if as_json:
        typer.echo(json.dumps([asdict(f) for f in found], indent=2, ensure_ascii=False))
    else:
        _print_findings(found, f"{against} and the registry" if registry else against)
    if found:
        raise typer.Exit(1)


def _files() -> dict[str, SchemaFile]:
    """The newest schema file of every subject."""
    declarations = {system: declared(system) for system in SYSTEMS}
    return {
        topic.subject(record): declarations[record.fullname.split(".")[1]].newest(record.name)
        for topic in topics().values()
        for record in topic.records
        if record not in CONTROL_RECORDS
    }


def _row(subject: str, file: SchemaFile) -> dict[str, Any]:
    return {
        "record": file.fullname,
        "version": file.version,
        "fields": len(file.schema["fields"]),
        "topic": subject.removesuffix(f"-{file.fullname}"),
        "subject": subject,
        "doc": file.schema["doc"],
    }


def _print_findings(found: list[checks.Finding], compared: str) -> None:
    console = Console()
    if not found:
        console.print(f"[green]No breaks[/] in {len(_files())} subjects against {compared}.")
        return
    table = Table("record", "against", "what breaks", box=SIMPLE)
    for f in found:
        table.add_row(f.subject, f.against, escape(f.what))
    console.print(table)
