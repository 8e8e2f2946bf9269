"""`python -m tests.bench NAME`: what `headrace bench` runs in the checkout."""

from __future__ import annotations

import argparse
from importlib import import_module
from inspect import signature

from streams.runtime.settings import Settings
from tests.bench import report
from tests.bench.names import VERBS
from tests.bench.store import clean

MODULES = {"report": "pages"}
"""Where a name is not that of its module."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("name", nargs="?", choices=VERBS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int)
    parser.add_argument("--only", type=lambda names: names.split(","), help="contenders: a,b")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--clean", action="store_true")
    given = parser.parse_args()
    if given.name:
        bench = import_module(f"tests.bench.{MODULES.get(given.name, given.name)}").bench
        more = {"only": given.only, "minutes": given.minutes}
        some = {option: value for option, value in more.items() if value}
        if unknown := some.keys() - signature(bench).parameters:
            parser.error(f"{given.name} does not know --{', --'.join(unknown)}")
        bench(given.runs, given.records, **some)
    if given.clean:
        report.console.print(f"deleted {', '.join(clean(Settings.read()))}")


if __name__ == "__main__":
    main()
