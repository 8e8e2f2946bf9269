"""`headrace api`: serve the HTTP API, or print its OpenAPI document."""

from __future__ import annotations

import json
import os
import resource
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings

from api.app import METRICS_FOLDER, document
from api.issuer import DevIssuer
from streams.runtime.settings import Settings, home

app = typer.Typer(add_completion=False)

HEADER_TIMEOUT_MS = 10_000
"""A client that has not sent its headers by then is cut off (slow-loris)."""
HEADER_BUFFER_BYTES = 65_536
DESCRIPTORS_SPARE = 512
"""Open files that are no connections of clients: stores, the log, libraries."""


@app.callback(
    invoke_without_command=True,
    epilog="Examples: [bold]headrace api[/] · headrace api --port 8080 --workers 4 · "
    "headrace api openapi > openapi.json",
)
def api(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=256, help="Processes that share the port.")
    ] = None,
) -> None:
    """Serve the HTTP API until interrupted."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.read().api
    if settings.keys_url is None and settings.keys_file is None:
        DevIssuer(home() / "keys", settings.issuer, settings.audience).key()
    workers = workers or settings.workers
    with TemporaryDirectory(prefix="headrace-metrics-") as folder:
        # Worker processes read the settings again: they have to know that they are one of several.
        os.environ["HEADRACE_API__WORKERS"] = str(workers)
        if workers > 1:
            os.environ.setdefault(METRICS_FOLDER, folder)
        server(
            host or settings.host, port or settings.port, workers, settings.connections_max
        ).serve()


@app.command(epilog="Example: [bold]headrace api openapi > openapi.json[/]")
def openapi() -> None:
    """Print the OpenAPI document; needs no running server."""
    typer.echo(json.dumps(document(), indent=2, ensure_ascii=False))


def connections_max(wanted: int) -> int:
    """So many connections a process, or as many as it may have open files, whichever is less. It
    takes for itself what the system lets it have.
    """
    needed = wanted + DESCRIPTORS_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return wanted
    soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - DESCRIPTORS_SPARE))


def server(host: str, port: int, workers: int, limit: int) -> Granian:
    """The server, with limits on connections and headers. The kernel spreads connections over the
    worker processes, so a client with one connection stays with one of them.
    """
    return Granian(
        "api.app:production",
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        factory=True,
        workers=workers,
        http=HTTPModes.http1,
        backpressure=connections_max(limit),
        http1_settings=HTTP1Settings(
            header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=HEADER_BUFFER_BYTES
        ),
        workers_kill_timeout=30,
    )
