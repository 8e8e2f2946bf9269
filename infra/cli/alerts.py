"""`headrace alerts`: evaluate alert rules over the log, or over its past."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from infra.alerts import service
from infra.error import StackError
from sinks.telemetry.query import Span
from streams.runtime.logging import configure
from streams.runtime.settings import Settings
from streams.telemetry.alerting import Alert, BadRules

app = typer.Typer(add_completion=False)
Instant = Annotated[
    datetime, typer.Option(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"], help="UTC, in event time.")
]


@app.callback(
    invoke_without_command=True,
    epilog="Examples: [bold]headrace alerts[/] · "
    "[bold]headrace alerts replay --since 2026-01-01 --until 2026-01-02[/]",
)
def alerts(context: typer.Context) -> None:
    """Judge the rules as the log goes on, until interrupted, and tell Alertmanager."""
    if context.invoked_subcommand is None:
        settings = Settings.read()
        configure(settings.log_level)
        _guarded(_run(settings))


@app.command(epilog="Example: headrace alerts replay --since 2026-01-01 --until 2026-01-02")
def replay(since: Instant, until: Instant) -> None:
    """Show what the rules would have made of a span of the past; nobody is told."""
    span = Span(_milliseconds(since), _milliseconds(until))
    console = Console()
    table = Table("time", "rule", "state", "value", "labels")
    changes = _guarded(service.replay(Settings.read(), span))
    for one in changes:
        time = datetime.fromtimestamp(one.changed_ms / 1_000, UTC).isoformat()
        table.add_row(time, one.rule, one.state, f"{one.value:g}", str(dict(one.labels)))
    console.print(table if changes else "No rule would have changed anything.")


def _milliseconds(moment: datetime) -> int:
    return int(moment.replace(tzinfo=UTC).timestamp()) * 1_000


async def _run(settings: Settings) -> list[Alert]:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await service.run(settings, stop)
    return []


def _guarded(work: object) -> list[Alert]:
    try:
        found: list[Alert] = asyncio.run(work)  # type: ignore[arg-type]
    except BadRules as error:
        raise StackError(str(error)) from error
    return found
