"""A worker process with a benchmark's own agents. Usage: worker BENCHMARK PORT SLOT

The same program as `python -m streams`, with real clients; the agents are what
`tests.bench.<BENCHMARK>.projections()` says. Where that module has a `sink(projection, settings)`,
it opens the sinks.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from importlib import import_module

from streams import worker
from streams.runtime.lane.service import lane
from streams.runtime.logging import configure
from streams.runtime.settings import Settings


def main(benchmark: str, port: int, slot: int) -> int:
    settings = Settings.read()
    configure(settings.log_level)
    module = import_module(f"tests.bench.{benchmark}")
    wiring = worker.wiring("bench", slot, settings)
    if (opened := getattr(module, "sink", None)) is not None:
        wiring = replace(wiring, open_sink=lambda one: opened(one, settings))
    makers = [lane(one, wiring) for one in module.projections()]
    return asyncio.run(worker.serve(makers, port=port, slot=slot, settings=settings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
