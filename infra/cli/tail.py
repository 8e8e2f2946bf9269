"""`headrace tail`: follow log files and send their lines."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from connectors.encode import Encoder
from connectors.producer import LogProducer
from connectors.telemetry.intake import Intake
from connectors.telemetry.line import Line
from connectors.telemetry.parse import FORMATS, Format
from connectors.telemetry.rules import BadRules
from connectors.telemetry.tail.agent import Reader, Shipper, Source, run
from connectors.telemetry.tail.spool import Spool, SpoolError
from infra.error import StackError
from schemas.registry import schema_ids
from schemas.telemetry.events import LOGS
from streams.runtime.logging import configure
from streams.runtime.settings import Settings, home

app = typer.Typer(add_completion=False)


@app.command(
    epilog="Examples: [bold]headrace tail pay '/var/log/pay/*.log'[/] · "
    "[bold]headrace tail edge /var/log/nginx/access.log --format access[/]"
)
def tail(
    service: Annotated[str, typer.Argument(help="The service that writes them.")],
    paths: Annotated[list[str], typer.Argument(help="Files, or patterns in quotes.")],
    format: Annotated[str, typer.Option(help=", ".join(FORMATS))] = "auto",
    spool: Annotated[
        Path | None, typer.Option(help="Folder of the buffer; one for each agent.")
    ] = None,
    host: Annotated[str, typer.Option(help="Name of this machine.")] = "",
) -> None:
    """Follow files until interrupted: through rotation, through outages, through `kill -9`."""
    if format not in FORMATS:
        raise typer.BadParameter(f"one of {', '.join(FORMATS)}", param_hint="--format")
    settings = Settings.read()
    configure(settings.log_level)
    known: Format = format
    source = Source(service, tuple(paths), known)
    folder = spool or home() / "spool" / service
    try:
        with Spool(folder) as opened:
            asyncio.run(_run(settings, source, opened, host or socket.gethostname()))
    except (SpoolError, BadRules) as error:
        raise StackError(str(error)) from error


async def _run(settings: Settings, source: Source, spool: Spool, host: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    ids = await asyncio.to_thread(schema_ids, LOGS, settings.registry)
    intake = Intake.configured(settings.telemetry)
    async with LogProducer.open(settings.kafka, {LOGS.name: Encoder(LOGS, ids)}) as producer:

        async def deliver(lines: Sequence[Line]) -> None:
            await intake.lines(producer, lines)

        sources = [source]
        await run(Reader(sources, spool), Shipper(host, sources, spool, deliver), stop)
