"""`python -m tests.bench NAME`: what `headrace bench` runs in the checkout."""

from __future__ import annotations

import argparse
from importlib import import_module

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.names import BENCHMARKS
from tests.bench.store import clean

MODULES = {"report": "pages"}
"""Where a name is not that of its module."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=[*BENCHMARKS, "report", "all"])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--clean", action="store_true")
    given = parser.parse_args()
    if given.name:
        module = import_module(f"tests.bench.{MODULES.get(given.name, given.name)}")
        more = {"minutes": given.minutes} if given.minutes else {}
        module.bench(given.runs, given.records, **more)
    if given.clean:
        report.console.print(f"deleted {', '.join(clean(Settings.read()))}")


if __name__ == "__main__":
    main()
