"""Rule tests of a reactor's handler without a broker or network: events in, a clock by hand.

    harness = Harness(REACTOR, handler)
    await harness.feed(MessageQueued(...))
    assert harness.outcomes == [MessageSent(...)]

    provider.down = True
    await harness.feed(MessageQueued(...))
    await harness.advance(5_000)          # the second try
    assert [task.attempt for task in harness.calls[-2:]] == [1, 2]

The rules are the real ones (limits, breakers, delays without jitter); only the log is a list. A
crash (`crash`) forgets all that is not on it, as the real one does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from streams.runtime.reactor.core import Call, Core, Done, Later, Move, Over, Start, Why
from streams.runtime.reactor.rules import Handler, Reactor, Task
from streams.runtime.reactor.wire import Journey

_TURNS_IDLE = 50
"""Turns of the event loop without anything new: what still runs waits for something."""


@dataclass(frozen=True)
class DeadLetter:
    """A task that went to the dead letter topic."""

    task: Task
    reason: str


@dataclass(frozen=True)
class Deferred:
    """A task that went to a retry topic."""

    task: Task
    why: Why
    delay_ms: int
    reason: str


@dataclass(frozen=True)
class _Event:
    record: str
    row: Any
    key: str


@dataclass
class Harness:
    """One partition of one reactor. Calls run in the test's event loop, as many at once as the
    limits allow; what hangs there can be left hanging (`running`), and times out when `advance`
    passes the reactor's `timeout_ms`.
    """

    reactor: Reactor
    handler: Handler
    now_ms: int = 1_700_000_000_000
    calls: list[Task] = field(default_factory=list, init=False)
    """Every task handed to `act`, in order."""
    outcomes: list[Any] = field(default_factory=list, init=False)
    deferred: list[Deferred] = field(default_factory=list, init=False)
    dead: list[DeadLetter] = field(default_factory=list, init=False)
    passed_over: int = field(default=0, init=False)
    """Events that `route` said were not for this reactor."""
    _log: list[_Event] = field(default_factory=list, init=False)
    _unfinished: dict[int, Journey] = field(default_factory=dict, init=False)
    _waiting: list[tuple[int, int, Journey]] = field(default_factory=list, init=False)
    _running: dict[asyncio.Task[Any], tuple[Call, int]] = field(default_factory=dict, init=False)
    _serial: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._core = Core(self.reactor, lambda: 0.0)

    @property
    def running(self) -> list[Task]:
        """Tasks whose `act` has not returned."""
        return [call.task for call, _ in self._running.values()]

    async def feed(self, *rows: Any) -> None:
        """Append events to the log, let the reactor take them and run until nothing moves."""
        topic = self.reactor.topic
        names = {record.row: record.fullname for record in topic.records}
        for row in rows:
            offset = len(self._log)
            self._log.append(_Event(names[type(row)], row, str(getattr(row, topic.key, ""))))
            journey = Journey(topic.name, 0, offset, self.now_ms)
            self._unfinished[offset] = journey
            self._take(journey)
        await self.settle()

    async def settle(self) -> None:
        """Run until no call can go on by itself."""
        idle = 0
        while idle < _TURNS_IDLE:
            await asyncio.sleep(0)
            idle = 0 if self._collect() else idle + 1

    async def advance(self, ms: int) -> None:
        """Move the clock, stopping at every due retry and every timeout on the way."""
        until_ms = self.now_ms + ms
        while (next_ms := self._next_ms()) is not None and next_ms <= until_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for running, (_, out_ms) in list(self._running.items()):
                if out_ms <= self.now_ms:
                    running.cancel()
            while self._waiting and self._waiting[0][0] <= self.now_ms:
                self._take(heappop(self._waiting)[2])
            await self.settle()
        self.now_ms = until_ms

    async def crash(self) -> None:
        """Die with all calls cut off, and start again from the log."""
        running = list(self._running)
        self._running.clear()
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._core = Core(self.reactor, lambda: 0.0)
        for journey in list(self._unfinished.values()):
            self._take(journey)
        await self.settle()

    async def redrive(self) -> None:
        """Send all dead letters again, as an operator would."""
        letters, self.dead = self.dead, []
        for letter in letters:
            task = letter.task
            journey = Journey(
                self.reactor.topic.name,
                task.partition,
                task.offset,
                task.time_ms,
                redrives=task.redrives + 1,
            )
            self._unfinished[task.offset] = journey
            self._take(journey)
        await self.settle()

    def _take(self, journey: Journey) -> None:
        event = self._log[journey.offset]
        self._unfinished[journey.offset] = journey
        route = self.handler.route(event.record, event.row)
        if route is None:
            self.passed_over += 1
            del self._unfinished[journey.offset]
            return
        task = Task(
            journey.id,
            event.record,
            event.row,
            event.key,
            journey.partition,
            journey.offset,
            journey.time_ms,
            journey.attempt,
            journey.redrives,
        )
        self._follow(self._core.offer(Call(task, route, journey), self.now_ms))

    def _follow(self, moves: Iterable[Move]) -> None:
        for move in moves:
            task = move.call.task
            match move:
                case Start():
                    self.calls.append(task)
                    running = asyncio.get_running_loop().create_task(_act(self.handler, task))
                    out_ms = self.now_ms + self.reactor.limits.timeout_ms
                    self._running[running] = (move.call, out_ms)
                case Later():
                    self._outcome(move.outcome)
                    self.deferred.append(
                        Deferred(task, move.why, move.delay_ms, move.journey.reason)
                    )
                    del self._unfinished[task.offset]
                    self._serial += 1
                    heappush(self._waiting, (move.journey.due_ms, self._serial, move.journey))
                case Done():
                    self._outcome(move.outcome)
                    del self._unfinished[task.offset]
                case Over():
                    self._outcome(self.handler.gave_up(task, move.reason))
                    self.dead.append(DeadLetter(task, move.reason))
                    del self._unfinished[task.offset]

    def _outcome(self, row: Any | None) -> None:
        if row is None:
            return
        topic = self.reactor.outcomes
        if topic is None or type(row) not in {record.row for record in topic.records}:
            raise TypeError(f"{self.reactor.name} has no topic for the outcome {row!r}")
        self.outcomes.append(row)

    def _collect(self) -> bool:
        """Take in the calls that have ended; whether there were any."""
        ended = [running for running in self._running if running.done()]
        for running in ended:
            call, _ = self._running.pop(running)
            result = TimeoutError() if running.cancelled() else running.result()
            self._follow(self._core.ended(call, result, self.now_ms))
        return bool(ended)

    def _next_ms(self) -> int | None:
        times = [out_ms for _, out_ms in self._running.values()]
        if self._waiting:
            times.append(self._waiting[0][0])
        return min(times, default=None)


async def _act(handler: Handler, task: Task) -> Any:
    try:
        return await handler.act(task)
    except Exception as error:
        return error
