"""A simulated provider as a process: `headrace simulate`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from connectors.notifications.simulators.behaviour import Inbox, Mode
from connectors.notifications.simulators.http import Callbacks, HttpSimulator


@dataclass(frozen=True)
class Wanted:
    """What to serve."""

    channel: str
    port: int
    mode: Mode = "ok"
    key: str = "secret"
    log: Path | None = None
    callback_url: str = ""
    callback_secret: str = ""


async def serve(wanted: Wanted) -> None:
    """Serve until cancelled."""
    inbox = Inbox(wanted.log)
    if wanted.channel == "email":
        # Only here: the mail server is a dependency of development.
        from connectors.notifications.simulators.smtp import SmtpSimulator

        mail = SmtpSimulator(inbox)
        mail.behaviour.mode = wanted.mode
        await mail.start(wanted.port)
    else:
        callbacks = Callbacks(wanted.callback_url, wanted.callback_secret)
        http = HttpSimulator(wanted.key, inbox, callbacks if wanted.callback_url else None)
        http.behaviour.mode = wanted.mode
        await http.start(wanted.port)
    await asyncio.Event().wait()
