"""`headrace dlq`: what was set aside, why, and sending it again."""

from __future__ import annotations

import io
import json
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import fastavro
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from infra.cli.explain import explained, settings
from infra.dlq import reading
from infra.dlq.letters import Letter
from infra.dlq.redrive import REDRIVES_MAX, Fate, NotSent, Redrive, Wish, group_of, stored
from schemas.catalog import topic as declared
from schemas.catalog import topics
from streams.runtime import kafka
from streams.runtime.avro import RegistrySource, RegistryUnavailable
from streams.runtime.avro.registry import SchemaSource, UnknownSchema
from streams.runtime.settings import Settings
from streams.runtime.topic import Topic

app = typer.Typer(no_args_is_help=True, help="Dead letters: list, show, redrive.")

EXIT_LEFT, EXIT_NOT_SENT = 1, 4
HEX_BYTES_MAX = 256
REASON_CHARS_MAX = 100

TopicName = Annotated[
    str, typer.Option("--topic", help="The source topic, for example ads.events.")
]


@app.command(
    name="list",
    epilog="Examples: [bold]headrace dlq list[/] · headrace dlq list --topic ads.events --json",
)
def list_letters(
    topic: Annotated[str | None, typer.Option(help="Only this source topic.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Machine-readable output.")] = False,
) -> None:
    """Dead letters by topic, agent and reason, and how many of them are not redriven yet."""
    with explained_too():
        chosen = list(topics().values()) if topic is None else [declared(topic)]
        known = settings()
        rows = [row for one in chosen for row in _counted(known, one)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        typer.echo("no dead letters")
        return
    table = Table("topic", "agent", "reason", box=None, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("letters", justify="right")
    table.add_column("to redrive", justify="right")
    for row in rows:
        texts = (row["topic"], row["agent"], row["reason"])
        table.add_row(*map(escape, texts), f"{row['letters']:,}", f"{row['to_redrive']:,}")
    Console().print(table)


@app.command(
    epilog="Examples: [bold]headrace dlq show --topic ads.events[/] · "
    "headrace dlq show --topic ads.events --partition 2 --offset 17",
)
def show(
    topic: TopicName,
    partition: Annotated[int | None, typer.Option(min=0, help="With --offset: one letter.")] = None,
    offset: Annotated[
        int | None, typer.Option(min=0, help="Its offset in the dead letter topic.")
    ] = None,
    newest: Annotated[int, typer.Option("-n", min=1, help="Else so many of the newest.")] = 3,
) -> None:
    """Whole letters: where from, why, headers, key, and the value decoded where it can be."""
    if (partition is None) != (offset is None):
        raise typer.BadParameter("--partition and --offset go together")
    with explained_too():
        known, found = settings(), declared(topic)
        spans = reading.bounds(known.kafka, found.dead_letters)
        if partition is not None and offset is not None:
            if not spans.get(partition, (0, 0))[0] <= offset < spans.get(partition, (0, 0))[1]:
                raise typer.BadParameter(f"{found.dead_letters} has no letter {partition}/{offset}")
            spans = {partition: (offset, offset + 1)}
        else:
            spans = {p: (max(first, end - newest), end) for p, (first, end) in spans.items()}
        letters = list(reading.letters(known.kafka, found.dead_letters, spans))
        letters.sort(key=lambda letter: (letter.timestamp_ms, letter.partition, letter.offset))
        schemas = RegistrySource(known.registry.url)
        for letter in deque(letters, maxlen=newest):
            _print(letter, found, schemas)
    if not letters:
        typer.echo("no dead letters")


@app.command(
    epilog="Examples: [bold]headrace dlq redrive --topic ads.events --dry-run[/] · "
    "headrace dlq redrive --topic ads.events --reason UnknownSchema --rate 100. "
    "Exit codes: 0 done, 1 letters are left that were to be sent, 4 Kafka did not take some.",
)
def redrive(
    topic: TopicName,
    *,
    reason: Annotated[str, typer.Option(help="Only letters whose reason has this text.")] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="Send at most so many.")] = None,
    rate: Annotated[float, typer.Option(min=0, help="Letters a second; 0: at full speed.")] = 0.0,
    force: Annotated[
        bool, typer.Option("--force", help=f"Also those that came back {REDRIVES_MAX} times.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
) -> None:
    """Send dead letters back to their topic as they were, each source record once.

    A second run goes on where the first one ended. Fix the cause first: a record that fails
    again becomes a new letter, and after three times it stays.
    """
    with explained_too():
        run = Redrive(settings().kafka, Wish(declared(topic), reason, limit, rate, force, dry_run))
        try:
            fates = run.run()
        except NotSent as error:
            typer.echo(str(error), err=True)
            raise typer.Exit(EXIT_NOT_SENT) from error
    sent = "would be sent" if dry_run else "sent"
    typer.echo(f"{fates[Fate.SENT]:,} {sent} to {topic}")
    for fate in Fate:
        if fate is not Fate.SENT and fates[fate]:
            typer.echo(f"{fates[fate]:,} {fate.value}")
    if run.stopped:
        typer.echo(run.stopped, err=True)
    left = (Fate.LOOPING, Fate.NO_SOURCE, Fate.OTHER_TOPIC)
    if run.stopped or any(fates[fate] for fate in left):
        raise typer.Exit(EXIT_LEFT)


@contextmanager
def explained_too() -> Iterator[None]:
    """As `explained`, with the failures of reading."""
    try:
        with explained():
            yield
    except (kafka.UnknownTopic, reading.Unreadable, RegistryUnavailable) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(5) from error


def _counted(known: Settings, topic: Topic) -> list[dict[str, Any]]:
    """One row per agent and reason, most letters first."""
    name = topic.dead_letters
    spans = reading.bounds(known.kafka, name)
    group = kafka.consumer(known.kafka, group_of(name))
    try:
        progress = stored(group, name, spans)
    finally:
        group.close()
    counts: Counter[tuple[str, str]] = Counter()
    waiting: Counter[tuple[str, str]] = Counter()
    for letter in reading.letters(known.kafka, name, spans):
        what = (letter.agent, letter.reason[:REASON_CHARS_MAX])
        counts[what] += 1
        waiting[what] += letter.offset not in progress[letter.partition]
    return [
        {
            "topic": topic.name,
            "agent": agent,
            "reason": reason,
            "letters": count,
            "to_redrive": waiting[agent, reason],
        }
        for (agent, reason), count in counts.most_common()
    ]


def _print(letter: Letter, topic: Topic, schemas: SchemaSource) -> None:
    console = Console()
    console.rule(f"{topic.dead_letters}/{letter.partition}/{letter.offset}", align="left")
    source = "unknown" if letter.source is None else "/".join(map(str, letter.source))
    when = datetime.fromtimestamp(letter.timestamp_ms / 1_000, UTC).isoformat("T", "seconds")
    facts = Table.grid(padding=(0, 2))
    for label, text in (
        ("from", source),
        ("set aside", f"{when} by {letter.agent or 'somebody unknown'}"),
        ("reason", letter.reason),
        ("redriven", f"{letter.redrives} times"),
        ("key", _text(letter.key)),
        ("value", _value(letter.value, schemas)),
        *((name, _text(value)) for name, value in letter.headers if "stacktrace" not in name),
    ):
        facts.add_row(f"[dim]{escape(label)}[/]", escape(text))
    console.print(facts)
    if letter.stacktrace:
        console.print(escape(letter.stacktrace.rstrip()), style="dim", highlight=False)


def _value(value: bytes | None, schemas: SchemaSource) -> str:
    """As JSON by the schema it names, else as hexadecimal digits and why."""
    if value is None:
        return "null"
    if len(value) > 5 and value[0] == 0:
        try:
            writer = schemas.writer_schema(int.from_bytes(value[1:5], "big"))
            body = io.BytesIO(value[5:])
            row = fastavro.schemaless_reader(body, fastavro.parse_schema(writer.json), None)
            rest = len(value) - 5 - body.tell()
            text = json.dumps(row, default=str, ensure_ascii=False, indent=2)
        except UnknownSchema as error:
            return f"{_hex(value)}\n({error})"
        except Exception as error:
            return f"{_hex(value)}\n(not decodable: {type(error).__name__}: {error})"
        return f"{writer.fullname} {text}" + (f"\n({rest} bytes too many)" if rest else "")
    return _hex(value)


def _text(value: bytes | None) -> str:
    """As text where it is printable UTF-8, else as hexadecimal digits."""
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return _hex(value)
    return text if text.isprintable() else _hex(value)


def _hex(value: bytes) -> str:
    more = f"… ({len(value):,} bytes)" if len(value) > HEX_BYTES_MAX else ""
    return f"0x{value[:HEX_BYTES_MAX].hex()}{more}"
