"""`python -m connectors.notifications.simulators sms --port 9000`: a provider as a process."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from connectors.notifications.simulators.behaviour import Inbox
from connectors.notifications.simulators.http import Callbacks, HttpSimulator
from connectors.notifications.simulators.smtp import SmtpSimulator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("channel", choices=("email", "sms", "push"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key", default="secret", help="the bearer key it asks for")
    parser.add_argument("--log", type=Path, help="a file that gets a line for each message taken")
    parser.add_argument("--mode", default="ok", help="ok, down, busy, hang or refuse")
    parser.add_argument("--callback-url", default="", help="where status reports go")
    parser.add_argument("--callback-secret", default="")
    asyncio.run(_serve(parser.parse_args()))


async def _serve(given: argparse.Namespace) -> None:
    inbox = Inbox(given.log)
    simulator: SmtpSimulator | HttpSimulator
    if given.channel == "email":
        simulator = SmtpSimulator(inbox)
    else:
        callbacks = None
        if given.callback_url:
            callbacks = Callbacks(given.callback_url, given.callback_secret)
        simulator = HttpSimulator(given.key, inbox, callbacks)
    simulator.behaviour.change({"mode": given.mode})
    await simulator.start(given.port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    main()
