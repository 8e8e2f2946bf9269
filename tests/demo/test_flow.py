"""Delivery: everything is sent, and it ends when everything is folded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from data import many_flights
from rich.console import Console

from infra.demo import flow, sources
from infra.demo.flow import Flow
from infra.demo.waves import waves
from infra.error import StackError
from streams import catalog
from streams.runtime.settings import Settings


class Log:
    """A topic and an agent that folds it, `step` rows at every look; 0: never."""

    def __init__(self, step: int) -> None:
        self.sent = self.folded = 0
        self.step = step
        self.fail = False

    def send(self, _record: str, rows: pl.DataFrame) -> int:
        if self.fail:
            raise RuntimeError("broker away")
        self.sent += rows.height
        return rows.height

    def counts(self, _sink: Any) -> Counter[str]:
        self.folded = min(self.sent, self.folded + self.step)
        return Counter(applied=self.folded)


@contextmanager
def opened(log: Log) -> Iterator[Log]:
    yield log


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log(step=100)
    monkeypatch.setattr(flow, "LOOK_S", 0.001)
    monkeypatch.setattr(flow, "open_bulk", lambda *_: opened(log))
    monkeypatch.setattr(flow, "counts", log.counts)
    monkeypatch.setattr(flow, "open_sink", lambda *_: SimpleNamespace(close=lambda: None))
    return log


def deliver(console: Console) -> Flow:
    _, projection = catalog.projection("leaderboard")
    traffic = sources.scores_from_flights(many_flights(300))
    made = Flow(Settings(), [projection], console)
    made.deliver([(traffic.topic, 600, waves(traffic))])
    return made


@pytest.mark.parametrize("terminal", [False, True])
def test_it_ends_when_all_is_folded(log: Log, terminal: bool) -> None:
    console = Console(force_terminal=terminal, width=120, record=True, quiet=True)
    made = deliver(console)
    assert made.sent.total() == log.sent == log.folded
    assert log.sent > 500


def test_an_agent_that_stands_still_is_an_error(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "STALL_S", 0.05)
    log.step = 0
    with pytest.raises(StackError, match="no agent has folded anything"):
        deliver(Console(quiet=True))


def test_a_sender_that_fails_is_not_waited_for(log: Log) -> None:
    log.fail = True
    with pytest.raises(RuntimeError, match="broker away"):
        deliver(Console(quiet=True))
