"""`python -m tests.simulation`: many seeds, on all cores, with one line at the end.

The line has what the runs did to the system (`faults`), what it was seen to do about it (`seen`),
and, of every promise that did not hold, the seed: `--seed N` runs that one again.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from contextlib import nullcontext

from rich.console import Console

from tests.simulation.many import many, report
from tests.simulation.plants import PLANTS
from tests.simulation.run import quiet, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="headrace sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=1, help="the first one")
    parser.add_argument("--seed", type=int, help="run this one, and show its traceback")
    parser.add_argument("--plant", default="", choices=["", *PLANTS], help="with a fault planted")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    if arguments.seed is not None:
        quiet()
        with PLANTS[arguments.plant]() if arguments.plant else nullcontext():
            found = run(arguments.seed, raises=True)
        print(report([found], 0))
        return 0
    console = Console(soft_wrap=True)
    began = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    results = many(seeds, arguments.plant, arguments.processes or 1, console)
    print(report(results, time.monotonic() - began))
    return 1 if any(r.failure for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
