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
from streams.runtime.topic import Topic, retry_topic


@dataclass(frozen=True, slots=True)
class Route:
    """Whom a task concerns: limits and circuit breakers go by these names.

    `tenant` pays, `target` is one receiver (a host, an endpoint), `provider` is who is called.
    An empty name has no limit, an empty provider no breaker.
    """

    tenant: str = ""
    target: str = ""
    provider: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One event to act on. `id` is the same at every try, before and after a crash."""

    id: str
    """The event's place, `topic/partition/offset`."""
    record: str
    """The record's full name."""
    row: Any
    key: str
    partition: int
    offset: int
    time_ms: int
    """The log's append time of the event."""
    attempt: int
    """1 at the first try."""
    redrives: int = 0
    """How often an operator sent it again after the last try; tries are counted anew then."""


class Retry(Exception):
    """Raised by `act`: it may work later. `after_ms` is what the provider asked for.

    With `counts=False` it was no try (a rate limit held the call back): it costs none of the
    tries and says nothing of the provider's health. `outcome` (a row of the outcomes topic) is
    what is told of this try, before the next; after the last one `gave_up` tells.
    """

    def __init__(
        self,
        reason: str,
        *,
        after_ms: int | None = None,
        counts: bool = True,
        outcome: Any | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_ms = after_ms
        self.counts = counts
        self.outcome = outcome


class GiveUp(Exception):
    """Raised by `act`: trying again cannot help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Handler(Protocol):
    """What one reactor does. Used from one event loop; many `act` run at once."""

    def route(self, record: str, row: Any) -> Route | None:
        """Whom the event concerns; None: it is not for this reactor. `record` is a full name. Pure
        and quick; what it raises makes the event a dead letter.
        """
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
    There is one retry topic per distinct delay; the source topic's declaration lists them.
    """

    delays_ms: tuple[int, ...] = (5_000, 30_000, 300_000, 1_800_000)
    jitter: float = 0.2

    def __post_init__(self) -> None:
        """Raises `ValueError`."""
        if not self.delays_ms or min(self.delays_ms) <= 0 or not 0 <= self.jitter < 1:
            raise ValueError("a retry policy has delays above 0 and a jitter in [0, 1)")

    @property
    def levels(self) -> tuple[int, ...]:
        """The distinct delays, ascending: one retry topic each."""
        return tuple(sorted(set(self.delays_ms)))

    @property
    def tries_max(self) -> int:
        """Tries in all."""
        return len(self.delays_ms) + 1


@dataclass(frozen=True)
class Limits:
    """Bounds on what runs at once. A task that finds its target's or tenant's limit reached waits
    in memory up to `waiting_max`, then goes to the first retry topic without counting as a try;
    who has most waiting gives way first. `timeout_ms` bounds one `act`. All are per process.
    """

    in_flight_max: int = 256
    per_tenant: int = 64
    per_target: int = 8
    waiting_max: int = 2_000
    timeout_ms: int = 15_000


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker per provider: after `failures` in a row no call for `open_ms`, then one.
    If that fails too the time doubles, up to `open_ms_max`. Tasks that meet an open breaker wait in
    a retry topic and lose no try.
    """

    failures: int = 10
    open_ms: int = 10_000
    open_ms_max: int = 120_000


@dataclass(frozen=True)
class Reactor:
    """One agent: events → the outside → outcome events.

    `open` connects and yields the handler. `outcomes` is where outcome rows go (None: nowhere);
    their key is the topic's key field. A new reactor begins at the start of the log.
    """

    name: str
    topic: Topic
    open: Callable[[Settings], AbstractAsyncContextManager[Handler]]
    outcomes: Topic | None = None
    retry: RetryPolicy = RetryPolicy()
    limits: Limits = Limits()
    breaker: Breaker = Breaker()

    def __post_init__(self) -> None:
        """Raises `ValueError` unless the topic declares this reactor's retry topics."""
        if tuple(self.topic.retries.get(self.name, ())) != self.retry.levels:
            delays = list(self.retry.levels)
            raise ValueError(
                f"{self.topic.name} does not declare the retry topics of {self.name}: write "
                f'retries = {{ "{self.name}" = {delays} }} for it in topics.toml'
            )

    def retry_topic(self, delay_ms: int) -> str:
        """The retry topic of one of the policy's delays."""
        return retry_topic(self.name, delay_ms)
