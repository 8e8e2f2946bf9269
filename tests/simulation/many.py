"""Many runs at once, each process with its share of the seeds, and the one line about them all."""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.plants import PLANTS
from tests.simulation.run import Result, quiet, run

SHOWN_MAX = 10


def one(work: tuple[int, str]) -> Result:
    """A run in a process of its own; `work` is the seed and the name of a planted fault or ""."""
    seed, plant = work
    with PLANTS[plant]() if plant else nullcontext():
        return run(seed)


def silent() -> None:
    """Polars' panics, which are caught, write to stderr past Python."""
    quiet()
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 2)


def many(seeds: range, plant: str, processes: int, console: Console) -> list[Result]:
    results = []
    columns = ("{task.description}", MofNCompleteColumn(), "seeds", TimeRemainingColumn())
    shown = [TextColumn(one) if isinstance(one, str) else one for one in columns]
    context = multiprocessing.get_context("spawn")
    with (
        Progress(*shown, console=console, transient=True) as progress,
        context.Pool(processes, initializer=silent, maxtasksperchild=200) as pool,
    ):
        task = progress.add_task("simulating", total=len(seeds))
        for result in pool.imap_unordered(one, [(seed, plant) for seed in seeds], chunksize=4):
            results.append(result)
            progress.advance(task)
            if result.failure and len([r for r in results if r.failure]) <= SHOWN_MAX:
                first = result.failure.splitlines()[0][:300]
                console.print(f"[red]seed {result.seed}[/]: {first}", highlight=False)
    return results


def report(results: list[Result], wall_s: float) -> str:
    """The one line of many runs."""
    faults: Counter[str] = sum((r.faults for r in results), Counter())
    seen: Counter[str] = sum((r.seen for r in results), Counter())
    failed = sorted(r.seed for r in results if r.failure)
    seeds = [r.seed for r in results]
    hours = sum(r.virtual_ms for r in results) / 3_600_000
    return (
        f"seeds={min(seeds)}..{max(seeds)} runs={len(results)} failed={len(failed)} "
        f"steps={sum(r.steps for r in results):,} records={sum(r.records for r in results):,} "
        f"simulated_h={hours:.1f} wall_s={wall_s:.0f}\nfaults={dict(faults.most_common())}\n"
        f"seen={dict(seen.most_common())}" + (f"\nfailing seeds: {failed[:50]}" if failed else "")
    )
