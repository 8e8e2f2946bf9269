"""`headrace produce`: the rows of a file, as events."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from connectors.encode import EncodeError
from connectors.files import Pace, Report, open_sender, produce_file
from connectors.mapping import BadMapping, Mapper
from connectors.producer import Undelivered
from connectors.readers import UnreadableFile
from infra.cli.explain import explained
from schemas import catalog
from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType, Topic

app = typer.Typer(add_completion=False)


def _speed(text: str) -> float:
    if text == "max":
        return 0.0
    if text == "realtime":
        return 1.0
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)x", text)
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter("max, realtime, or a factor such as 60x or 0.5x")
    return float(match[1])


def _mapping(pairs: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, expression = pair.partition("=")
        if not equals or not name.strip() or not expression.strip():
            raise typer.BadParameter(f"{pair!r} is not field=expression")
        found[name.strip()] = expression.strip()
    return found


def _record(topic: Topic, name: str | None) -> RecordType:
    known = {record.name: record for record in topic.records}
    if name is None and len(known) == 1:
        return topic.records[0]
    if name is None or name.rsplit(".", 1)[-1] not in known:
        raise typer.BadParameter(f"--record: {topic.name} carries {', '.join(known)}")
    return known[name.rsplit(".", 1)[-1]]


@app.command(
    epilog="Examples: [bold]headrace produce clicks.csv.gz -t ads.events -r AdClicked "
    "-m event_time=ts -m \"click_id=concat('log-', _line)\"[/] · "
    "headrace produce scores.parquet -t leaderboard.scores -r ScoreSubmitted --speed 60x · "
    "headrace produce clicks.jsonl -t ads.events -r AdClicked --dry-run"
)
def produce(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="CSV, JSONL (also .gz) or Parquet.")
    ],
    *,
    topic: Annotated[str, typer.Option("--topic", "-t", help="A topic of the catalogue.")],
    record: Annotated[
        str | None, typer.Option("--record", "-r", help="Needed where the topic has several.")
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map", "-m", help="field=expression: a column, 'text', or SQL over columns and _line."
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option(help="What times without an offset mean, for example UTC.")
    ] = None,
    speed: Annotated[str, typer.Option(help="max, realtime, or 60x event time.")] = "max",
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check all rows, send none.")] = False,
) -> None:
    """Send the rows of a file as events, at full speed or in the rhythm of their event times.

    Columns go to the fields of their name unless mapped. Rows that do not fit are written to
    FILE.rejected.jsonl with their line and the reason, and make the exit code 1.
    """
    with explained():
        found = catalog.topic(topic)
        mapper = _mapper(found, record, mapping or [], zone)
        pace = Pace(found.event_time, _speed(speed))
        config = Settings.read()
        started = time.monotonic()
        try:
            with _bar() as bar, open_sender(found, config, dry_run=dry_run) as sender:
                task = bar.add_task(file.name, total=limit)
                report = produce_file(
                    file,
                    mapper,
                    sender,
                    pace,
                    limit=limit,
                    progress=lambda rows: bar.advance(task, rows),
                )
                bar.update(task, total=report.rows, completed=report.rows)
        except (BadMapping, UnreadableFile, Undelivered, EncodeError) as error:
            Console(stderr=True).print(f"[red]error:[/] {error}", highlight=False)
            raise typer.Exit(1) from error
    _tell(report, found.name, time.monotonic() - started, dry_run=dry_run)
    if report.rejected:
        raise typer.Exit(1)


def _mapper(topic: Topic, record: str | None, pairs: list[str], zone: str | None) -> Mapper:
    try:
        return Mapper(topic, _record(topic, record), _mapping(pairs), zone)
    except BadMapping as error:
        raise typer.BadParameter(f"--map: {error}") from error


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(show_speed=True),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
    )


def _tell(report: Report, topic: str, seconds: float, *, dry_run: bool) -> None:
    out = Console(highlight=False)
    rate = report.sent / seconds if seconds else 0
    what = "would be sent" if dry_run else "sent"
    out.print(f"{report.sent:,} rows {what} to {topic} in {seconds:.1f} s ({rate:,.0f}/s)")
    if report.rejected_file is not None:
        out.print(f"[yellow]{report.rejected:,} rows rejected:[/] {report.rejected_file}")
