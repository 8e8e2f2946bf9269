"""A worker process of a fault test: the product's lanes over a run's own topics and read models.

`python -m tests.chaos.worker RUN --agents windows,events --slot 0 --port P`; everything else comes
from the environment, as in production.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from schemas.ads.events import EVENTS
from schemas.leaderboard.events import SCORES
from streams import ads, leaderboard, payments
from streams.catalog import AnyAgent
from streams.runtime.batch import Batch
from streams.runtime.decider.rules import Decider
from streams.runtime.derivation.rules import Derivation
from streams.runtime.logging import configure
from streams.runtime.outcome import Outcome
from streams.runtime.projection import Fold, Projection, System
from streams.runtime.settings import Settings
from streams.worker import maker, serve
from tests.chaos import crash, lists

EXPLODES, PANICS, DIES = "explodes", "panics", "dies"
"""Campaigns that the fold of the tests cannot take."""
SNAPSHOT_EVENTS = 2_000
"""Few, so that short runs recover from snapshots, too."""


@dataclass(frozen=True)
class Fragile:
    """A fold that fails on chosen campaigns as folds do: an exception, a panic, a dead process."""

    inner: Fold[Any]

    def start(self, stored: Mapping[str, pl.DataFrame]) -> Any:
        return self.inner.start(stored)

    def fold(self, state: Any, batch: Batch) -> tuple[Any, Outcome]:
        for frame in batch.frames.values():
            campaigns = set(frame["campaign_id"].unique())
            if DIES in campaigns:
                os._exit(3)
            if EXPLODES in campaigns:
                raise ValueError("a row that the fold cannot take")
            if PANICS in campaigns:
                raise pl.exceptions.PanicException("a row that Polars cannot take")
        return self.inner.fold(state, batch)

    def provisional(self, state: Any) -> list[Any]:
        return self.inner.provisional(state)


def projections(run: str) -> dict[str, Projection]:
    """The read models of a run: the product's, under other names."""
    systems = (ads.SYSTEM, leaderboard.SYSTEM, payments.SYSTEM)
    by_name = {one.name: one for system in systems for one in system.projections}
    events, scores = f"{run}.events", f"{run}.scores"

    def renamed(name: str, new: str, topic: str, source: Any) -> Projection:
        one = by_name[name]
        return replace(
            one,
            name=f"{run}-{new}",
            topic=replace(source, name=topic),
            model=replace(one.model, name=f"{run}-{new}"),
        )

    windows = renamed("ads-windows", "windows", events, EVENTS)
    journal = deciders(run)["payments"].events
    books = renamed("payments-books", "books", journal.name, journal)
    by_group, by_place = lists.projections(run)
    return {
        "windows": replace(windows, fold=Fragile(windows.fold)),
        "events": renamed("ads-events", "events", events, EVENTS),
        "wide": replace(renamed("ads-windows", "wide", events, EVENTS), store="cassandra"),
        "bulk": replace(renamed("ads-events", "bulk", events, EVENTS), store="s3"),
        "boards": renamed("leaderboard", "boards", scores, SCORES),
        "books": replace(books, store="redis"),
        "elements": by_group,
        "places": by_place,
    }


def deciders(run: str) -> dict[str, Decider]:
    """The deciders of a run: the product's over topics of the run, and one that keeps lists."""
    (ledger,) = payments.SYSTEM.deciders
    commands = replace(ledger.commands, name=f"{run}.payments-commands")
    events = replace(
        ledger.events, name=f"{run}.payments-events", decides=commands.name, retries={}
    )
    ledger = replace(ledger, name=f"{run}-payments", commands=commands, events=events)
    return {
        "payments": replace(ledger, snapshot_events=SNAPSHOT_EVENTS),
        "lists": lists.decider(run),
    }


def derivations(run: str) -> dict[str, Derivation]:
    """The derivations of a run."""
    return {"spread": lists.derivation(run)}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--agents", default="windows")
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows-max", type=int)
    parser.add_argument("--dies", choices=sorted(crash.POINTS))
    arguments = parser.parse_args()
    settings = Settings.read()
    configure(settings.log_level)
    if arguments.dies:
        crash.install(arguments.dies)
    run = arguments.run
    known: dict[str, AnyAgent] = {**projections(run), **deciders(run), **derivations(run)}
    chosen = [known[name] for name in arguments.agents.split(",")]
    if arguments.rows_max:
        chosen = [
            replace(one, rows_max=arguments.rows_max) if isinstance(one, Projection) else one
            for one in chosen
        ]
    system = System(run, "A test's")
    makers = [maker(system, one, arguments.slot, settings) for one in chosen]
    return asyncio.run(serve(makers, port=arguments.port, slot=arguments.slot, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
