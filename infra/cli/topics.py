"""`headrace topics`: the topic catalogue, and bringing Kafka and the registry in line with it."""

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
from schemas.apply import Report, wanted
from schemas.apply import apply as apply_catalogue
from schemas.apply import plan as plan_catalogue
from schemas.catalog import derived, system_of, topic, topics
from schemas.generate.declaration import declared
from streams.runtime.topic import Topic

app = typer.Typer(no_args_is_help=True, help="The topic catalogue: list, describe, apply.")

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


@app.command(
    name="list",
    epilog="Examples: [bold]headrace topics list[/] · headrace topics list --json | jq '.[].name'",
)
def list_topics(as_json: Json = False) -> None:
    """All declared topics."""
    with explained():
        declared_topics = list(topics().values())
    if as_json:
        typer.echo(json.dumps([_summary(t) for t in declared_topics], indent=2))
        return
    titles = ("topic", "records", "key", "parts", "kept", "late until", "with it")
    columns = [Column(title, overflow="fold") for title in titles]
    table = Table(*columns, box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for t in declared_topics:
        records = "\n".join(r.name for r in t.records)
        kept, lateness = _duration(t.retention_ms), _duration(t.allowed_lateness_ms)
        more = list(derived(t))
        retries = sum(".retry." in name for name in more)
        beside = [name.removeprefix(t.name) for name in more if ".retry." not in name]
        with_it = "\n".join([*beside, *([f"{retries} retries"] if retries else [])])
        table.add_row(t.name, records, t.key, str(t.partitions), kept, lateness, with_it)
    Console().print(table)


@app.command(
    epilog="Examples: [bold]headrace topics describe ads.events[/] · "
    "headrace topics describe ads.events --json",
)
def describe(
    name: Annotated[str, typer.Argument(help="A declared topic, for example ads.events.")],
    as_json: Json = False,
) -> None:
    """One topic: its records and their fields, its settings, who writes and reads it."""
    with explained():
        found = topic(name)
        readers = _readers(found)
    factor = settings().kafka.replication_factor
    kafka = {w.name: dict(w.config) for w in wanted(found, factor)}
    if as_json:
        full = {**_summary(found), "readers": readers, "kafka": kafka}
        full["schemas"] = {found.subject(r): r.schema for r in found.records}
        typer.echo(json.dumps(full, indent=2, ensure_ascii=False))
        return
    _print_topic(found, readers, kafka[found.name])


@app.command(
    name="apply",
    epilog="Examples: [bold]headrace topics apply --dry-run[/] · headrace topics apply. "
    "Exit codes: 0 in line, 3 partition counts differ, 4 Kafka or the registry refused, "
    "5 Kafka or the registry does not answer.",
)
def apply_topics(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create and configure all topics (with .dlq and .late) and register all schemas."""
    with explained():
        report = plan_catalogue(settings()) if dry_run else apply_catalogue(settings())
    if as_json:
        typer.echo(json.dumps(_report(report), indent=2))
    else:
        _print_report(report, "would be" if dry_run else "was")
    if report.partitions:  # only a dry run comes here with some; apply has raised
        raise typer.Exit(3)


def _readers(found: Topic) -> list[str]:
    declaration = declared(system_of(found.name))
    return next(t.readers for t in declaration.topics if t.name == found.name)


def _summary(t: Topic) -> dict[str, Any]:
    return {
        "name": t.name,
        "doc": t.doc,
        "owner": t.owner,
        "records": [r.fullname for r in t.records],
        "key": t.key,
        "event_time": t.event_time,
        "partitions": t.partitions,
        "retention_ms": t.retention_ms,
        "cleanup_policy": t.cleanup_policy,
        "allowed_lateness_ms": t.allowed_lateness_ms,
        "out_of_orderness_ms": t.out_of_orderness_ms,
        "future_skew_ms": t.future_skew_ms,
        "columnar": t.columnar,
        "derived": list(derived(t)),
    }


def _print_topic(t: Topic, readers: list[str], config: dict[str, str]) -> None:
    console = Console()
    console.print(f"[bold]{t.name}[/]  {escape(t.doc)}")
    facts = Table.grid(padding=(0, 2))
    for label, value in (
        ("key", t.key),
        ("event time", t.event_time or "none"),
        ("partitions", str(t.partitions)),
        ("late until", _duration(t.allowed_lateness_ms)),
        ("out of order up to", _duration(t.out_of_orderness_ms)),
        ("ahead up to", _duration(t.future_skew_ms)),
        ("decoded as", "columns" if t.columnar else "rows"),
        ("written by", t.owner),
        ("read by", ", ".join(readers) or "nobody yet"),
        ("with it", ", ".join(derived(t))),
        ("Kafka", ", ".join(f"{k}={v}" for k, v in config.items())),
    ):
        facts.add_row(f"[dim]{label}[/]", value)
    console.print(facts)
    for record in t.records:
        docs = {f["name"]: f["doc"] for f in record.schema["fields"]}
        table = Table("field", "type", "what", box=SIMPLE)
        table.title, table.title_justify = record.fullname, "left"
        for name, annotation in record.row.__annotations__.items():
            shown = "timestamp" if name == t.event_time else annotation
            table.add_row(name, escape(shown), escape(docs[name]))
        console.print(table)


def _report(report: Report) -> dict[str, Any]:
    return {
        "create": [w.name for w in report.create],
        "alter": [asdict(change) for change in report.alter],
        "register": [subject.name for subject in report.register],
        "partitions": [asdict(difference) for difference in report.partitions],
        "replicas": [asdict(difference) for difference in report.replicas],
        "unknown": list(report.unknown),
    }


def _print_report(report: Report, tense: str) -> None:
    console = Console()
    table = Table("what", "name", "detail", box=SIMPLE)
    for w in report.create:
        table.add_row(f"topic {tense} created", w.name, f"{w.partitions} partitions")
    for c in report.alter:
        table.add_row(f"setting {tense} changed", c.topic, f"{c.key}: {c.before} → {c.after}")
    for s in report.register:
        table.add_row(f"schema {tense} registered", s.name, f"{len(s.versions)} version(s)")
    for d in report.partitions:
        detail = f"declared {d.declared}, actual {d.actual}"
        table.add_row("[red]partitions differ: apply will stop[/]", d.topic, detail)
    for d in report.replicas:
        detail = f"set {d.declared}, actual {d.actual}: kafka-reassign-partitions changes it"
        table.add_row("[yellow]replication differs[/]", d.topic, detail)
    for name in report.unknown:
        table.add_row("[yellow]nobody declares[/]", name, "left as it is")
    if table.row_count:
        console.print(table)
    if not report.changes:
        console.print("[green]Nothing to do:[/] Kafka and the registry are as declared.")


def _duration(ms: int) -> str:
    if ms < 0:
        return "for ever"
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if ms >= size and ms % size == 0:
            return f"{ms // size} {unit}"
    return f"{ms} ms"
