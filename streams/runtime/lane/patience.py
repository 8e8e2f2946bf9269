"""Waiting for what is down: with growing pauses, never skipping, never giving up."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import structlog
from confluent_kafka import KafkaException

from streams.runtime.avro import RegistryUnavailable
from streams.runtime.lane.span import Seat
from streams.runtime.metrics import AgentMetrics
from streams.runtime.sink import SinkRejected, SinkUnavailable

BACKOFF_MS_FIRST = 50
BACKOFF_MS_MAX = 5_000

T = TypeVar("T")

log = structlog.get_logger()


class Stopped(Exception):
    """The worker stops, or the seat was revoked: drop what is in hand."""


class Patience:
    """Repeats an act while the registry, the store or the broker is down."""

    def __init__(self, agent: str, metrics: AgentMetrics, stopping: threading.Event) -> None:
        self._agent = agent
        self._metrics = metrics
        self._stopping = stopping
        self.tried_s = 0.0
        """When something was last tried (monotonic): who waits is alive."""

    def __call__(self, seat: Seat, act: Callable[[], T]) -> T:
        """Do `act` until it neither fails for an outage nor for a passing refusal.

        Raises `Stopped` when the worker stops or the seat is revoked meanwhile, and whatever else
        `act` raises.
        """
        wait_ms = BACKOFF_MS_FIRST
        while True:
            self.tried_s = time.monotonic()
            try:
                return act()
            except RegistryUnavailable as error:
                self._metrics.registry_retry()
                reason: Exception = error
            except (SinkUnavailable, KafkaException, TimeoutError) as error:
                self._metrics.sink_retry(type(error).__name__)
                reason = error
            except SinkRejected as error:
                if not error.transient:
                    raise
                self._metrics.sink_retry(type(error).__name__)
                reason = error
            log.warning("waiting", agent=self._agent, at=seat.name, error=str(reason))
            pause_ms = wait_ms * random.uniform(0.5, 1.0)  # noqa: S311 -- spread, not secrecy
            if self._stopping.wait(pause_ms / 1000) or seat.revoked:
                raise Stopped from reason
            wait_ms = min(wait_ms * 2, BACKOFF_MS_MAX)
