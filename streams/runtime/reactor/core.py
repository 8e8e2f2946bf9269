"""What becomes of a task: the rules of a reactor without Kafka, network or clock. Pure.

The shell tells what happened (`offer`, `ended`, `cancelled`) and does what it is told in return
(`Start`, `Later`, `Done`, `Over`); the test harness does the same with a clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from streams.runtime.reactor.admission import Admission, Moves
from streams.runtime.reactor.breaker import Breakers
from streams.runtime.reactor.rules import GiveUp, Reactor, Retry, RetryPolicy, Route, Task
from streams.runtime.reactor.wire import Journey

REASON_CHARS_MAX = 500


class Why(StrEnum):
    """Why a task goes to a retry topic; all but `FAILED` cost no try."""

    FAILED = "failed"
    LIMIT = "limit"
    """Its target or tenant has too many waiting."""
    BREAKER = "breaker"
    HELD_BACK = "held_back"
    """The handler did not call: a rate limit."""
    EARLY = "early"
    """The next try is further away than the longest delay."""


@dataclass(eq=False)
class Call:
    """One task on its way. `record` is the shell's: where it came from."""

    task: Task
    route: Route
    journey: Journey
    record: Any = None
    probe: bool = False


@dataclass(frozen=True)
class Start:
    """Let the handler act; tell `ended` or `cancelled` afterwards."""

    call: Call


@dataclass(frozen=True)
class Later:
    """Record the outcome, if there is one; then send the record to the retry topic of `delay_ms`,
    with `journey`.
    """

    call: Call
    why: Why
    delay_ms: int
    journey: Journey
    outcome: Any | None = None


@dataclass(frozen=True)
class Done:
    """Record the outcome, if there is one."""

    call: Call
    outcome: Any | None


@dataclass(frozen=True)
class Over:
    """The last try failed: record `gave_up`'s outcome and send a dead letter."""

    call: Call
    reason: str
    error: BaseException


Move = Start | Later | Done | Over


class Core:
    """Limits, breakers and retries of one reactor in one process. Not thread-safe.

    `spread()` gives a number in [-1, 1] for the jitter. Times are Unix milliseconds.
    """

    def __init__(self, reactor: Reactor, spread: Callable[[], float]) -> None:
        self._retry = reactor.retry
        self._spread = spread
        self.admission: Admission[Call] = Admission(reactor.limits)
        self.breakers = Breakers(reactor.breaker)

    def offer(self, call: Call, now_ms: int) -> list[Move]:
        """A task is here and due."""
        early_ms = call.journey.not_before_ms - now_ms
        if early_ms > 0:
            return [self._later(call, Why.EARLY, call.journey.reason, early_ms, now_ms)]
        if refused := self._refused(call, now_ms):
            return [refused]
        return list(self._follow(self.admission.offer(call.route, call), now_ms))

    def ended(self, call: Call, result: Any | BaseException, now_ms: int) -> list[Move]:
        """`act` returned an outcome or raised."""
        provider, probe = call.route.provider, call.probe
        match result:
            case Retry(counts=False):
                self.breakers.undecided(provider, probe=probe)
            case BaseException() if not isinstance(result, GiveUp):
                self.breakers.failed(provider, now_ms, probe=probe)
            case _:
                self.breakers.succeeded(provider, probe=probe)
        follow = self._follow(self.admission.release(call.route), now_ms)
        return [self._verdict(call, result, now_ms), *follow]

    def cancelled(self, call: Call, now_ms: int) -> list[Move]:
        """A call that had started was cut off; what follows concerns others."""
        self.breakers.undecided(call.route.provider, probe=call.probe)
        return list(self._follow(self.admission.release(call.route), now_ms))

    def _verdict(self, call: Call, result: Any | BaseException, now_ms: int) -> Move:
        match result:
            case GiveUp():
                return Over(call, result.reason[:REASON_CHARS_MAX], result)
            case Retry(counts=False):
                wait_ms = result.after_ms or 0
                return self._later(call, Why.HELD_BACK, result.reason, wait_ms, now_ms)
            case BaseException():
                return self._failed(call, result, now_ms)
        return Done(call, result)

    def _failed(self, call: Call, error: BaseException, now_ms: int) -> Move:
        reason = _reason(error)
        attempt = call.journey.attempt
        if attempt >= self._retry.tries_max:
            return Over(call, f"{reason} (try {attempt} of {self._retry.tries_max})", error)
        journey = replace(call.journey, attempt=attempt + 1, reason=reason, not_before_ms=0)
        delay_ms = self._retry.delays_ms[attempt - 1]
        asked_ms = error.after_ms if isinstance(error, Retry) else None
        if asked_ms is not None and asked_ms > delay_ms:
            delay_ms = longest_within(self._retry, asked_ms)
            journey = replace(journey, not_before_ms=now_ms + asked_ms)
        later = self._send(call, Why.FAILED, delay_ms, journey, now_ms)
        return replace(later, outcome=error.outcome) if isinstance(error, Retry) else later

    def _follow(self, moves: Moves[Call], now_ms: int) -> Iterator[Move]:
        """Begin what was admitted. A breaker may have opened while it waited; then its room goes
        to the next.
        """
        while moves.start or moves.park:
            for call in moves.park:
                yield self._later(call, Why.LIMIT, "too many wait", 0, now_ms)
            freed: list[Moves[Call]] = []
            for call in moves.start:
                if refused := self._refused(call, now_ms):
                    freed.append(self.admission.release(call.route))
                    yield refused
                else:
                    call.probe = self.breakers.begin(call.route.provider)
                    yield Start(call)
            moves = Moves(
                list(chain.from_iterable(one.start for one in freed)),
                list(chain.from_iterable(one.park for one in freed)),
            )

    def _refused(self, call: Call, now_ms: int) -> Later | None:
        wait_ms = self.breakers.wait_ms(call.route.provider, now_ms)
        if not wait_ms:
            return None
        reason = f"{call.route.provider} fails: not called for a while"
        return self._later(call, Why.BREAKER, reason, wait_ms, now_ms)

    def _later(self, call: Call, why: Why, reason: str, wait_ms: int, now_ms: int) -> Later:
        """Without costing a try, and not before `wait_ms` have passed."""
        journey = replace(call.journey, reason=reason, not_before_ms=now_ms + wait_ms)
        return self._send(call, why, longest_within(self._retry, wait_ms), journey, now_ms)

    def _send(self, call: Call, why: Why, delay_ms: int, journey: Journey, now_ms: int) -> Later:
        due_ms = now_ms + round(delay_ms * (1 + self._retry.jitter * self._spread()))
        reason = journey.reason[:REASON_CHARS_MAX]
        return Later(call, why, delay_ms, replace(journey, due_ms=due_ms, reason=reason))


def longest_within(policy: RetryPolicy, wait_ms: int) -> int:
    """The longest delay that does not overshoot, or the shortest there is."""
    return max((one for one in policy.levels if one <= wait_ms), default=policy.levels[0])


def due_at(journey: Journey, appended_ms: int, delay_ms: int, jitter: float) -> int:
    """When a record leaves its retry topic. Never later than the topic's delay allows, whatever a
    header says: what is behind it waits too.
    """
    return min(journey.due_ms, appended_ms + round(delay_ms * (1 + jitter)))


def _reason(error: BaseException) -> str:
    if isinstance(error, Retry):
        return error.reason
    if isinstance(error, TimeoutError) and not str(error):
        return "timeout"
    return f"{type(error).__name__}: {error}"
