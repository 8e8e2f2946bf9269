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
from streams import ads, leaderboard
from streams.runtime.batch import Batch
from streams.runtime.lane.service import lane
from streams.runtime.logging import configure
from streams.runtime.outcome import Outcome
from streams.runtime.projection import Fold, Projection
from streams.runtime.settings import Settings
from streams.worker import serve, wiring

EXPLODES, PANICS, DIES = "explodes", "panics", "dies"
"""Campaigns that the fold of the tests cannot take."""


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
    by_name = {one.name: one for one in (*ads.SYSTEM.projections, *leaderboard.SYSTEM.projections)}
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
    return {
        "windows": replace(windows, fold=Fragile(windows.fold)),
        "events": renamed("ads-events", "events", events, EVENTS),
        "boards": renamed("leaderboard", "boards", scores, SCORES),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--agents", default="windows")
    parser.add_argument("--slot", type=int, default=0)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--rows-max", type=int)
    arguments = parser.parse_args()
    settings = Settings.read()
    configure(settings.log_level)
    known = projections(arguments.run)
    chosen = [known[name] for name in arguments.agents.split(",")]
    if arguments.rows_max:
        chosen = [replace(one, rows_max=arguments.rows_max) for one in chosen]
    lanes = [lane(one, wiring(arguments.run, arguments.slot, settings)) for one in chosen]
    return asyncio.run(serve(lanes, port=arguments.port, slot=arguments.slot, settings=settings))


if __name__ == "__main__":
    sys.exit(main())
