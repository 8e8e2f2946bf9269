"""`python -m tests.bench NAME`: what `headrace bench` runs in the checkout."""

from __future__ import annotations

import argparse
from importlib import import_module
from inspect import signature

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.store import clean

BENCHMARKS = ("lane", "latency", "decider", "commands", "notifications", "rebuild", "nexmark")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=BENCHMARKS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int)
    parser.add_argument("--only", type=lambda names: names.split(","), help="contenders: a,b")
    parser.add_argument("--clean", action="store_true")
    given = parser.parse_args()
    if given.name:
        bench = import_module(f"tests.bench.{given.name}").bench
        some = {"only": given.only} if given.only else {}
        if some and "only" not in signature(bench).parameters:
            parser.error(f"{given.name} has no contenders to choose from")
        bench(given.runs, given.records, **some)
    if given.clean:
        report.console.print(f"deleted {', '.join(clean(Settings.read()))}")


if __name__ == "__main__":
    main()
