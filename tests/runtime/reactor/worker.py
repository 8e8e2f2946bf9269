"""One worker process with the reactor of a test run."""

from __future__ import annotations

import asyncio
import sys

from streams.runtime.logging import configure
from streams.runtime.reactor.service import Reacting
from streams.runtime.settings import Settings
from streams.worker import reactor_wiring, serve
from tests.runtime.reactor.asking import reactor


def main() -> int:
    run, provider, port = sys.argv[1:4]
    settings = Settings.read()
    configure("INFO")
    asking = reactor(run, provider)
    wiring = reactor_wiring(run, asking, settings)
    make = [lambda app: Reacting(app, asking, wiring)]
    return asyncio.run(serve(make, port=int(port), slot=0, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
