"""Run the pretended provider: `python -m connectors.payments.simulator --port 20500`."""

from __future__ import annotations

import argparse

from aiohttp import web

from connectors.payments.simulator.book import Behaviour, Operations
from connectors.payments.simulator.server import Simulator


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=18_090)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--key", default="dev")
    parser.add_argument("--webhook-url", default="", help="where webhooks go; none without")
    parser.add_argument("--webhook-secret", default="whsec_ZGV2ZWxvcG1lbnQ=")
    parser.add_argument("--flawless", action="store_true", help="nothing goes wrong")
    given = parser.parse_args()
    flawless = Behaviour(*(0 for _ in Behaviour.__dataclass_fields__))
    behaviour = flawless if given.flawless else Behaviour()
    simulator = Simulator(
        Operations(given.seed, behaviour), given.key, given.webhook_url, given.webhook_secret
    )
    web.run_app(simulator.app(), host=given.host, port=given.port, print=None)


if __name__ == "__main__":
    main()
