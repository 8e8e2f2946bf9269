"""A broker that does not answer while partitions are given out is waited for."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException

from streams.runtime import kafka
from streams.runtime.decider import service
from streams.runtime.decider.service import Deciding
from streams.runtime.lane.span import Seat

BOUNDS = kafka.LogBounds("id", 3, 9, 1)


def asked(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Any:
    """A decider's shell whose broker answers so; the waits between are short."""
    left = list(answers)

    def answer(*_: Any) -> kafka.LogBounds:
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(service.kafka, "log_bounds", answer)
    monkeypatch.setattr(service, "RETRY_S", 0.0)
    return SimpleNamespace(_admin=None, name="bank", _stopping=threading.Event(), left=left)


def test_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = asked(monkeypatch, TimeoutError(), KafkaException("down"), BOUNDS)
    assert Deciding._bounds(shell, Seat("bank.commands", 0)) == BOUNDS
    assert not shell.left


def test_a_worker_that_stops_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = asked(monkeypatch, TimeoutError("gone"))
    shell._stopping.set()
    with pytest.raises(TimeoutError, match="gone"):
        Deciding._bounds(shell, Seat("bank.commands", 0))


def test_a_topic_that_is_not_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = asked(monkeypatch, kafka.UnknownTopic("no such topic"))
    with pytest.raises(kafka.UnknownTopic):
        Deciding._bounds(shell, Seat("bank.commands", 0))
