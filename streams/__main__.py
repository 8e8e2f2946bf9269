"""`python -m streams AGENT...`: one worker process, as the supervisor starts it."""

from __future__ import annotations

import argparse
import sys

from streams import worker
from streams.runtime import tracing
from streams.runtime.logging import configure
from streams.runtime.settings import Settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m streams", description=__doc__)
    parser.add_argument("agents", nargs="+", help="read models to fold, for example leaderboard")
    parser.add_argument("--port", type=int, required=True, help="of probes and metrics")
    parser.add_argument("--slot", type=int, default=0, help="number of this process in the worker")
    parser.add_argument("--restarts", type=int, default=0, help="how often it was restarted")
    given = parser.parse_args()
    settings = Settings.read()
    configure(settings.log_level)
    tracing.configure("headrace-worker")
    return worker.run(
        given.agents,
        port=given.port,
        slot=given.slot,
        restarts=given.restarts,
        settings=settings,
    )


if __name__ == "__main__":
    sys.exit(main())
