"""What a reactor is made of: events in, calls to the outside, outcome events out.

A call happens at least once: a crash between the call and its record repeats it, with the same
`Task.id`, which a provider that can is given as idempotency key. A failed call goes to a retry
topic of the log and never sleeps in the lane; after the last try it goes to the dead letter topic.
A rebuild never runs a reactor.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from streams.runtime.settings import Settings
from streams.runtime.topic import Topic


@dataclass(frozen=True, slots=True)
class Route:
    """Whom a task concerns: limits and circuit breakers go by these names.

    `tenant` pays, `target` is one receiver (a host, an endpoint), `provider` is who is called.
    """

    tenant: str = ""
    target: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One event to act on. `id` is the same at every try, before and after a crash."""

    id: str
    record: str
    row: Any
    key: str
    partition: int
    offset: int
    time_ms: int
    """The log's append time of the event."""
    attempt: int
    """1 at the first try."""


class Retry(Exception):
    """Raised by `act`: it may work later. `after_ms` is what the provider asked for."""

    def __init__(self, reason: str, *, after_ms: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_ms = after_ms


class GiveUp(Exception):
    """Raised by `act`: trying again cannot help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Handler(Protocol):
    """What one reactor does. Used from one event loop; many `act` run at once."""

    def route(self, record: str, row: Any) -> Route | None:
        """Whom the event concerns; None: it is not for this reactor."""
        ...

    async def act(self, task: Task) -> Any | None:
        """Call the outside; return the outcome (a row of the outcomes topic), or None for none.
        Raises `Retry` or `GiveUp`; anything else counts as `Retry`.
        """
        ...

    def gave_up(self, task: Task, reason: str) -> Any | None:
        """The outcome after the last try."""
        ...


@dataclass(frozen=True)
class RetryPolicy:
    """Delays before the second, third, … try (milliseconds), each with ±`jitter` (a fraction).
    There is one retry topic per distinct delay.
    """

    delays_ms: tuple[int, ...] = (5_000, 30_000, 300_000, 1_800_000)
    jitter: float = 0.2


@dataclass(frozen=True)
class Limits:
    """Bounds on what runs at once. A task that finds its target's or tenant's limit reached waits
    in memory up to `waiting_max`, then goes to the first retry topic without counting as a try.
    """

    in_flight_max: int = 256
    per_tenant: int = 64
    per_target: int = 8
    waiting_max: int = 2_000
    timeout_ms: int = 15_000


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker per provider: after `failures` in a row no call for `open_ms`, then one."""

    failures: int = 10
    open_ms: int = 10_000


@dataclass(frozen=True)
class Reactor:
    """One agent: events → the outside → outcome events.

    `open` connects and yields the handler. `outcomes` is where outcome rows go (None: nowhere);
    their key is the topic's key field.
    """

    name: str
    topic: Topic
    open: Callable[[Settings], AbstractAsyncContextManager[Handler]]
    outcomes: Topic | None = None
    retry: RetryPolicy = RetryPolicy()
    limits: Limits = Limits()
    breaker: Breaker = Breaker()
