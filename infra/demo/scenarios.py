"""Which data goes through which system, how it is recounted, and what is asked of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from connectors import access_log
from connectors.datasets import DATASETS, fetch, flights, open_bandit, service_logs
from infra.demo import compare, lines, questions, recount, sources
from infra.demo.compare import Check
from infra.demo.questions import Question
from infra.demo.sources import Traffic
from streams.runtime.settings import Settings

Frames = Mapping[str, pl.DataFrame]
"""Data set → its rows; those that could not be had are absent."""


@dataclass(frozen=True)
class Scenario:
    """One system's part of the demo. `mappings` are in the order of event time."""

    system: str
    mappings: tuple[tuple[str, Callable[[pl.DataFrame], Traffic]], ...]
    recount: Callable[[], Any]
    checks: Callable[[Settings, Any], Iterator[Check]]
    questions: Callable[[Any], list[Question]]

    def traffic(self, frames: Frames) -> list[Traffic]:
        """The events of the data sets that are there, in the order of delivery."""
        return [mapping(frames[name]) for name, mapping in self.mappings if name in frames]


SCENARIOS = {
    "ads": Scenario(
        "ads",
        (
            ("access-log", sources.from_access_log),
            ("flights", sources.from_flights),
            ("open-bandit", sources.from_open_bandit),
        ),
        recount.Ads,
        compare.ads,
        questions.about_ads,
    ),
    "leaderboard": Scenario(
        "leaderboard",
        (("flights", sources.scores_from_flights),),
        recount.Scores,
        compare.leaderboard,
        questions.about_leaderboard,
    ),
    "telemetry": Scenario(
        "telemetry",
        (
            ("access-log", lines.from_access_log),
            ("service-logs", lines.from_service_logs),
        ),
        lines.Lines,
        lines.checks,
        lines.questions,
    ),
}


def load(name: str, cache: Path) -> pl.DataFrame:
    """A data set as rows. Raises `Unavailable`."""
    files = fetch(DATASETS[name], cache)
    if name == "flights":
        return flights.frame(files)
    if name == "open-bandit":
        return open_bandit.frame(files)
    if name == "service-logs":
        return service_logs.frame(files)
    (content,) = files.values()
    requests, _ = access_log.parse(content.decode(errors="replace"))
    return requests
