"""`headrace api`: serve the HTTP API, or print its OpenAPI document."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings

from api.app import document
from api.issuer import DevIssuer
from streams.runtime.settings import Settings, home

app = typer.Typer(add_completion=False)

HEADER_TIMEOUT_MS = 10_000
"""A client that has not sent its headers by then is cut off (slow-loris)."""
HEADER_BUFFER_BYTES = 65_536
CONNECTIONS_MAX = 2_048


@app.callback(
    invoke_without_command=True,
    epilog="Examples: [bold]headrace api[/] · headrace api --port 8080 · "
    "headrace api openapi > openapi.json",
)
def api(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65_535, help="Port.")] = None,
) -> None:
    """Serve the HTTP API until interrupted."""
    if context.invoked_subcommand is not None:
        return
    settings = Settings.read().api
    if settings.keys_url is None and settings.keys_file is None:
        DevIssuer(home() / "keys", settings.issuer, settings.audience).key()
    server(host or settings.host, port or settings.port).serve()


@app.command(epilog="Example: [bold]headrace api openapi > openapi.json[/]")
def openapi() -> None:
    """Print the OpenAPI document; needs no running server."""
    typer.echo(json.dumps(document(), indent=2, ensure_ascii=False))


def server(host: str, port: int) -> Granian:
    """The server, with limits on connections and headers; one process, since rates and metrics
    are counted per process: run more of them behind a balancer.
    """
    return Granian(
        "api.app:production",
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        factory=True,
        workers=1,
        websockets=False,
        http=HTTPModes.http1,
        backpressure=CONNECTIONS_MAX,
        http1_settings=HTTP1Settings(
            header_read_timeout=HEADER_TIMEOUT_MS, max_buffer_size=HEADER_BUFFER_BYTES
        ),
        workers_kill_timeout=30,
    )
