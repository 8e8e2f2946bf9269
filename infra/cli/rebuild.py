"""`headrace rebuild`: a read model from the log, beside the one that answers."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from sinks import digest
from sinks.open import open_sink
from streams import catalog
from streams.runtime import kafka, metrics
from streams.runtime import rebuild as builder
from streams.runtime.avro import RegistrySource
from streams.runtime.dead_letters import KafkaOutbox
from streams.runtime.decoding import decoder
from streams.runtime.native.feed import opened
from streams.runtime.projection import Projection, System
from streams.runtime.settings import Settings
from streams.runtime.sink import Sink

app = typer.Typer(add_completion=False)
console = Console()


@dataclass(frozen=True)
class Comparison:
    """Digests of both versions; true when they are equal."""

    live: str
    rebuilt: str
    rows: int
    differences: list[digest.Difference]

    def __bool__(self) -> bool:
        return self.live == self.rebuilt


def compare(sink: Sink, live: int, version: int) -> Comparison:
    """Digest both versions, and look for the rows that differ."""
    left, right = digest.digest(sink, live), digest.digest(sink, version)
    rows = sum(table.rows for table in right.values())
    found = [] if left == right else digest.differences(sink, live, version)
    return Comparison(digest.summary(left), digest.summary(right), rows, found)


@app.command(
    epilog="Examples: [bold]headrace rebuild ads --verify[/] · "
    "[bold]headrace rebuild leaderboard[/] · [bold]headrace rebuild ads-events --abort[/]"
)
def rebuild(
    name: Annotated[str, typer.Argument(help="A system (all its read models) or one read model.")],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the live version before the switch.")
    ] = False,
    keep_old: Annotated[
        bool, typer.Option("--keep-old", help="Leave the replaced version in the store.")
    ] = False,
    abort: Annotated[
        bool, typer.Option("--abort", help="Undo an interrupted rebuild instead.")
    ] = False,
) -> None:
    """Build a read model anew from the log while the old one keeps answering.

    Resumes by itself when interrupted. Prints a digest of the new version; with --verify the
    digest of the old one at the same positions must be equal, or nothing is switched (exit 1).
    """
    settings = Settings.read()
    for system, projection in chosen(name):
        sink = open_sink(projection.store, projection.model, settings)
        try:
            if abort:
                console.print(f"{projection.name}: dropped versions {builder.abort(sink)}")
            else:
                run(system, projection, sink, settings, verify=verify, keep_old=keep_old)
        except builder.Differs as differs:
            console.print(f"[red]{differs}[/red]")
            for one in getattr(differs.comparison, "differences", [])[:20]:
                console.print(f"  {one.table}/{one.partition} {one.key}: {one.left} ≠ {one.right}")
            console.print("The live version goes on answering; the rebuilt one is kept for a look.")
            raise typer.Exit(1) from differs
        finally:
            sink.close()


def chosen(name: str) -> list[tuple[System, Projection]]:
    """The projections of a system, or the one of that name."""
    if name in catalog.SYSTEMS:
        system = catalog.load(name)
        return [(system, projection) for projection in system.projections]
    try:
        return [catalog.projection(name)]
    except catalog.UnknownSystem as error:
        raise typer.BadParameter(str(error)) from error


def run(
    system: System,
    projection: Projection,
    sink: Sink,
    settings: Settings,
    *,
    verify: bool,
    keep_old: bool = False,
) -> builder.Report:
    """Rebuild one read model with a progress bar, and print what came of it."""
    admin = kafka.admin(settings.kafka)
    topic = projection.topic.name
    with (
        closing(RegistrySource(settings.registry.url)) as schemas,
        Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TextColumn("{task.completed:>12,.0f} rows  {task.fields[rate]:>11,.0f}/s"),
            TimeRemainingColumn(),
            console=console,
        ) as bars,
    ):
        bar = bars.add_task(projection.name, total=None, rate=0)

        def show(now: builder.Progress) -> None:
            bars.update(
                bar,
                description=f"{projection.name} {now.step}",
                completed=now.rows,
                total=now.target_rows,
                rate=now.rows / max(now.seconds, 0.001),
            )

        report = builder.Rebuild(
            projection,
            sink,
            decoder(projection.topic, schemas, projection.reads),
            KafkaOutbox(lambda: kafka.producer(settings.kafka)),
            metrics.default().agent(
                projection.name, system=system.name, topic=topic, store=projection.store
            ),
            opened(
                settings.kafka,
                f"rebuild-{projection.name}-{uuid.uuid4().hex[:8]}",
                topic,
                settings.reader,
            ),
            bounds=lambda seat: kafka.log_bounds(admin, seat.topic, seat.partition),
            compare=(lambda live, new: compare(sink, live, new)) if verify else None,
            progress=show,
            keep_old=keep_old,
        ).run()
    rate = report.rows / max(report.seconds, 0.001)
    found = (
        report.comparison.rebuilt
        if report.comparison
        else digest.summary(digest.digest(sink, report.version))
    )
    verdict = "equal to the live version" if report.comparison else "not compared"
    console.print(
        f"{projection.name}: version {report.version} answers; {report.rows:,} rows in "
        f"{report.seconds:.1f} s ({rate:,.0f}/s), writers paused {report.paused_s:.2f} s\n"
        f"  digest {found} ({verdict})"
    )
    return report
