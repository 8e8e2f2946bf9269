"""One worker process with the reactor of a test run."""

from __future__ import annotations

import asyncio
import sys

from streams.runtime.logging import configure
from streams.runtime.settings import Settings
from streams.worker import reactor_wiring, serve
from tests.runtime.reactor.asking import reactor


def main() -> int:
    run, provider, port = sys.argv[1:4]
    settings = Settings.read()
    configure("INFO")
    wiring = reactor_wiring(run, settings)
    asking = reactor(run, provider)
    return asyncio.run(serve([], [(asking, wiring)], port=int(port), slot=0, kafka=settings.kafka))


if __name__ == "__main__":
    sys.exit(main())
