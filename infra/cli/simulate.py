"""`headrace simulate`: a provider of mail, SMS or push that takes messages and keeps them."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from connectors.notifications.simulators import serve

app = typer.Typer(add_completion=False)


class Channel(StrEnum):
    """What the provider sends."""

    EMAIL = "email"
    SMS = "sms"
    PUSH = "push"


class Mode(StrEnum):
    """How it behaves: takes messages, 500, 429, never answers, 400."""

    OK = "ok"
    DOWN = "down"
    BUSY = "busy"
    HANG = "hang"
    REFUSE = "refuse"


@app.command(
    epilog="Examples: [bold]headrace simulate sms --port 18600[/] · "
    "headrace simulate email --port 18601 --log mails.jsonl"
)
def simulate(
    channel: Channel,
    *,
    port: Annotated[int, typer.Option(help="Where it listens, on loopback.")],
    mode: Annotated[Mode, typer.Option(help="How it behaves at first.")] = Mode.OK,
    key: Annotated[str, typer.Option(help="The bearer key it asks for.")] = "secret",
    log: Annotated[
        Path | None, typer.Option(help="A file that gets a line for each message taken.")
    ] = None,
    callback_url: Annotated[str, typer.Option(help="Where status reports go.")] = "",
    callback_secret: Annotated[str, typer.Option(help="What they are signed with.")] = "",
) -> None:
    """Serve until Ctrl-C. Of SMS and push, `PUT /behaviour` changes how it behaves, and
    `GET /messages` shows what it took.
    """
    wanted = serve.Wanted(channel, port, mode.value, key, log, callback_url, callback_secret)
    asyncio.run(serve.serve(wanted))
