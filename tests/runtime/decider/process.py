"""`python -m tests.runtime.decider.process PREFIX --port N`: a worker that runs the tests' bank."""

from __future__ import annotations

import argparse
import asyncio
import sys

from streams.runtime.logging import configure
from streams.runtime.projection import System
from streams.runtime.settings import Settings
from streams.worker import maker, serve
from tests.runtime.decider.bank import bank


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("prefix")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--snapshot-events", type=int, default=200_000)
    parser.add_argument("--standby", action="store_true")
    given = parser.parse_args()
    settings = Settings.read()
    configure(settings.log_level)
    decider = bank(
        given.prefix,
        given.partitions,
        snapshot_events=given.snapshot_events,
        standby=given.standby,
    )
    system = System("bank", "Bank", deciders=(decider,))
    makers = [maker(system, decider, given.slot, settings)]
    return asyncio.run(serve(makers, port=given.port, slot=given.slot, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
