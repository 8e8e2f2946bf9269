"""Make everything that follows from a new system's files: `python -m infra.slice.derived NAME`."""

from __future__ import annotations

import sys

from infra.grafana import generate as dashboards
from infra.slice import page
from schemas import asyncapi
from schemas.catalog import SYSTEMS


def derive(system: str) -> None:
    """Write the AsyncAPI document, the dashboards and the system's page."""
    asyncapi.write(SYSTEMS)
    dashboards.generate()
    page.write((system,))


if __name__ == "__main__":
    derive(sys.argv[1])
