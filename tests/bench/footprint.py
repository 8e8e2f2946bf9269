"""`bench footprint`: what Headrace takes while nothing happens, and how long it takes to start.

A worker with every agent of every system, and one API process, on logs that hold nothing new.
Start-up runs from the start of the process until it says that it is ready (a worker: every lane
has its partitions), with the servers already up. Memory is resident and unique (what would be
free if the process ended); idle processor time is measured once the process has settled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from api.issuer import DevIssuer
from infra.cli.worker import agents_of
from schemas.apply import apply
from streams import catalog
from streams.runtime.settings import Settings, home
from tests.bench import report
from tests.bench.workers import Server, server, until

PROVIDER = '[psp]\nurl = "http://127.0.0.1:9"\nkey = "none"\n'
"""A payment provider that nobody will call."""
IDLE_S = 20.0
SETTLE_S = 5.0
SLOT = 91


def bench(runs: int, records: int | None) -> dict[str, Any]:
    """Run it, print a table, write the result file; returns the result. `records` is not used:
    nothing is sent.
    """
    settings = Settings.read()
    apply(settings)
    DevIssuer(home() / "keys", settings.api.issuer, settings.api.audience).key()
    agents = agents_of(list(catalog.SYSTEMS))
    programs = {
        f"worker, {len(agents)} agents of {len(catalog.SYSTEMS)} systems": _worker(agents),
        "API process": _api,
    }
    measured: dict[str, list[dict[str, float]]] = {title: [] for title in programs}
    for turn in range(runs):
        for title, arguments in programs.items():
            measured[title].append(one := observed(arguments))
            report.console.print(f"  {turn + 1}/{runs} {title}: {one}")
    keys = ("start_s", "rss_mib", "uss_mib", "idle_core_percent", "threads")
    processes = [
        {"title": title, **{key: round(median(one[key] for one in found), 2) for key in keys}}
        for title, found in measured.items()
    ]
    result = {"processes": processes, "idle_s": IDLE_S, "runs": measured}
    columns = ("median", "start, s", "RSS MiB", "USS MiB", "idle, % of a core", "threads")
    report.table("footprint", columns, [(p["title"], *(p[key] for key in keys)) for p in processes])
    report.save("footprint", result)
    return result


def observed(arguments: Callable[[int], Sequence[str]]) -> dict[str, float]:
    """Start a program, wait until it is ready, watch it idle, stop it."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "payments.toml").write_text(PROVIDER)
        began = time.perf_counter()
        with server(Path(folder), arguments) as one:
            until(one.ready, "the process to be ready")
            start_s = time.perf_counter() - began
            time.sleep(SETTLE_S)
            before = one.cpu_s()
            time.sleep(IDLE_S)
            idle = (one.cpu_s() - before) / IDLE_S
            return {"start_s": start_s, "idle_core_percent": 100 * idle, **_memory(one)}


def _memory(one: Server) -> dict[str, float]:
    family = (one.seen, *one.seen.children(recursive=True))
    full = [process.memory_full_info() for process in family]
    return {
        "rss_mib": sum(m.rss for m in full) / 2**20,
        "uss_mib": sum(m.uss for m in full) / 2**20,
        "threads": sum(process.num_threads() for process in family),
    }


def _worker(agents: Sequence[str]) -> Callable[[int], Sequence[str]]:
    return lambda port: ("-m", "streams", *agents, "--port", str(port), "--slot", str(SLOT))


def _api(port: int) -> Sequence[str]:
    return ("-c", "from infra.cli import main; main()", "api", "--port", str(port))
