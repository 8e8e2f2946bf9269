"""Runs the tasks of one reactor on an event loop: calls, retries, outcomes, dead letters.

A record is finished only when what came of it is on the log: its outcome, its copy in a retry
topic, or its dead letter. Until then its offset is not committed. Whatever is cut off (a revoke, a
stop, a crash) is called again by who reads it next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from confluent_kafka import Message

from streams.runtime.dead_letters import connect_headers
from streams.runtime.decider.filter import Verdict, claimed, judge
from streams.runtime.decider.records import OWNERSHIP_CLAIMED
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.wire import (
    decision_of,
    envelope_headers,
    envelope_of,
    is_timer,
)
from streams.runtime.derivation import filter as derived
from streams.runtime.derivation.wire import source_of
from streams.runtime.lane.span import Seat, Span
from streams.runtime.position import FilterState
from streams.runtime.reactor.core import Call, Core, Done, Later, Move, Over, Start
from streams.runtime.reactor.metrics import ReactorMetrics
from streams.runtime.reactor.offsets import Commit, Offsets
from streams.runtime.reactor.outlet import Outgoing, Outlet, Unsendable
from streams.runtime.reactor.records import Reading, Records
from streams.runtime.reactor.rules import GiveUp, Handler, Reactor, Retry, Task
from streams.runtime.reactor.wire import Journey, own_headers

SENDS_MAX = 2_000
"""Records on their way to retry and dead letter topics before no more are read."""

CANCEL_S = 1.0
"""How long a call that was cut off may take to notice."""

Encode = Callable[[Any], tuple[bytes, bytes]]
"""Key and value of an outcome row; raises `ValueError` for a row that cannot be written."""

log = structlog.get_logger()


@dataclass(eq=False)
class Ledger:
    """What the engine keeps of one seat (`seat.memory`)."""

    offsets: Offsets
    topic_id: str
    leaving: bool = False
    """Nothing new is begun."""
    cut: bool = False
    """Nothing more is written either: the partition may be somebody else's."""
    work: set[asyncio.Task[None]] = field(default_factory=set)
    committed: Commit | None = None


@dataclass(frozen=True)
class Source:
    """Where a call's record is: its seat and message."""

    seat: Seat
    message: Message


@dataclass(eq=False)
class Engine:
    """Everything between reader and outlet. Used from one event loop.

    `failed(error)` is told what nobody expected; `now_ms()` is Unix time.
    """

    reactor: Reactor
    handler: Handler
    records: Records
    outlet: Outlet
    encode: Encode
    core: Core
    metrics: ReactorMetrics
    now_ms: Callable[[], int]
    failed: Callable[[BaseException], None]
    _sends: int = 0
    _room: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._room.set()

    async def take(self, span: Span) -> None:
        """Take a span in. Returns when more can be taken."""
        ledger: Ledger = span.seat.memory
        readings = await self.records.read(span)
        if span.seat.revoked or ledger.leaving:
            return
        for message, reading in zip(span.messages, readings, strict=True):
            self._one(Source(span.seat, message), ledger, reading)
        self._weigh()
        await self._room.wait()

    def _one(self, source: Source, ledger: Ledger, reading: Reading) -> None:
        """One record: acted on, set aside, or passed over."""
        message, offsets = source.message, ledger.offsets
        offset = message.offset()
        fresh = offsets.read(offset)
        counts = self._judge(source, ledger, reading)
        if not fresh:
            return
        if reading.dead:
            self._do(source, self._dead(source, self._journey(source), reading.dead, None))
        elif not counts or reading.row is None:
            offsets.finish(offset)
        else:
            self._route(source, offsets, reading)

    def _judge(self, source: Source, ledger: Ledger, reading: Reading) -> bool:
        """The reader rule of the source topic: A2 of a decider's events, B2 of a derived one."""
        topic, message = self.reactor.topic, source.message
        if source.seat.topic != topic.name:
            return True  # a retry: judged when it was read first
        before = ledger.offsets.filter or FilterState()
        if topic.derived_from:
            return self._judge_derived(ledger, before, message)
        if topic.decides is None:
            return True
        if reading.record == OWNERSHIP_CLAIMED.fullname:
            ledger.offsets.filter = claimed(before, message.offset(), reading.row.nonce)
            return False
        headers = message.headers()
        after, verdict = judge(before, decision_of(headers), timer=is_timer(headers))
        ledger.offsets.filter = after
        if verdict is not Verdict.ACCEPTED:
            self.metrics.passed_over("stale")
        return verdict is Verdict.ACCEPTED

    def _judge_derived(self, ledger: Ledger, before: FilterState, message: Message) -> bool:
        source = source_of(message.headers())
        if source is not None:  # event time is not asked for here, and the commit has little room
            source = replace(source, watermark_ms=0, partitions=0)
        ledger.offsets.filter, verdict = derived.judge(before, source)
        if verdict not in (derived.Verdict.ACCEPTED, derived.Verdict.HEARTBEAT):
            self.metrics.passed_over("stale")
        return verdict is derived.Verdict.ACCEPTED

    def _route(self, source: Source, offsets: Offsets, reading: Reading) -> None:
        journey = self._journey(source)
        try:
            route = self.handler.route(reading.record, reading.row)
        except Exception as error:
            reason = f"route: {type(error).__name__}: {error}"
            self._do(source, self._dead(source, journey, reason, error))
            return
        if route is None:
            self.metrics.passed_over("not_mine")
            offsets.finish(source.message.offset())
            return
        key = source.message.key()
        task = Task(
            id=journey.id,
            record=reading.record,
            row=reading.row,
            key="" if key is None else key.decode(errors="replace"),
            partition=journey.partition,
            offset=journey.offset,
            time_ms=journey.time_ms,
            attempt=journey.attempt,
            redrives=journey.redrives,
        )
        self._follow(self.core.offer(Call(task, route, journey, source), self.now_ms()))

    def _journey(self, source: Source) -> Journey:
        return Journey.of(source.message, retried=source.seat.topic != self.reactor.topic.name)

    # -- moves ----------------------------------------------------------------------------------

    def _follow(self, moves: Sequence[Move]) -> None:
        for move in moves:
            source: Source = move.call.record
            work = self._act(move.call) if isinstance(move, Start) else self._settle(move)
            self._do(source, work)

    def _do(self, source: Source, work: Coroutine[Any, Any, None]) -> None:
        """Run this for a record; a seat that leaves waits for it."""
        ledger: Ledger = source.seat.memory
        task = asyncio.get_running_loop().create_task(work)
        ledger.work.add(task)
        task.add_done_callback(lambda done: self._ended(ledger, done))

    def _ended(self, ledger: Ledger, done: asyncio.Task[None]) -> None:
        ledger.work.discard(done)
        if not done.cancelled() and (error := done.exception()):
            self.failed(error)
        self._weigh()

    async def _act(self, call: Call) -> None:
        """One call, and what came of it."""
        began = self.metrics.began(self.core)
        try:
            result = await self._result(call.task)
        except asyncio.CancelledError:
            self._follow(self.core.cancelled(call, self.now_ms()))
            raise
        mine, *others = self.core.ended(call, result, self.now_ms())
        self.metrics.ended(began, mine, self.core)
        self._follow(others)
        await self._settle(mine)

    async def _result(self, task: Task) -> Any | Exception:
        try:
            async with asyncio.timeout(self.reactor.limits.timeout_ms / 1_000):
                return await self.handler.act(task)
        except Exception as error:
            if not isinstance(error, Retry | GiveUp | TimeoutError):
                log.warning("act failed", reactor=self.reactor.name, task=task.id, exc_info=error)
            return error

    async def _settle(self, move: Move) -> None:
        """Put on the log what a move says, then finish the record."""
        source: Source = move.call.record
        if source.seat.memory.cut:
            return
        self._sends += 1
        try:
            match move:
                case Later():
                    await self._later(source, move)
                case Done() if move.outcome is not None:
                    await self._outcome(source, move.call, move.outcome)
                case Over():
                    await self._over(source, move)
            self._finish(source)
        finally:
            self._sends -= 1

    async def _later(self, source: Source, move: Later) -> None:
        self.metrics.later(move.why)
        if move.outcome is not None:
            task = move.call.task
            try_key = f"{task.redrives}/try/{task.attempt}"
            if not await self._outcome(source, move.call, move.outcome, try_key):
                return
        await self.outlet.send(
            Outgoing(
                self.reactor.retry_topic(move.delay_ms),
                source.message.key(),
                source.message.value(),
                [*own_headers(source.message.headers()), *move.journey.headers()],
                partition=source.seat.partition,
            )
        )

    async def _over(self, source: Source, move: Over) -> None:
        reason = move.reason
        try:
            outcome = self.handler.gave_up(move.call.task, reason)
        except Exception as error:
            log.exception("gave_up failed", reactor=self.reactor.name)
            outcome, reason = None, f"{reason}; gave_up: {type(error).__name__}: {error}"
        if outcome is not None:
            await self._outcome(source, move.call, outcome)
        await self._letter(source, move.call.journey, reason, move.error)

    async def _outcome(self, source: Source, call: Call, row: Any, key_part: str = "") -> bool:
        """Whether it is written. An outcome that cannot be makes its event a dead letter: the call
        was made.
        """
        topic = self.reactor.outcomes
        try:
            key, value = self.encode(row)
            headers = self._outcome_headers(source, call, key_part or str(call.task.redrives))
            await self.outlet.send(Outgoing(topic.name if topic else "", key, value, headers))
        except (ValueError, LookupError, Unsendable) as error:
            reason = f"outcome not written: {error}"
            await self._letter(source, call.journey, reason, error)
            return False
        return True

    def _outcome_headers(
        self, source: Source, call: Call, key_part: str
    ) -> list[tuple[str, bytes | None]]:
        """So that a decider who reads outcomes as commands takes each one once."""
        task, name = call.task, self.reactor.name
        before = envelope_of(source.message.headers(), task.id)
        envelope = Envelope(
            correlation_id=before.correlation_id,
            idempotency_key=f"{name}/{task.id}/{key_part}",
            subject=f"reactor:{name}",
        )
        return list(envelope_headers(envelope))

    async def _dead(
        self, source: Source, journey: Journey, reason: str, error: BaseException | None
    ) -> None:
        await self._letter(source, journey, reason, error)
        self._finish(source)

    async def _letter(
        self, source: Source, journey: Journey, reason: str, error: BaseException | None
    ) -> None:
        about = connect_headers(
            (journey.topic, journey.partition, journey.offset),
            agent=self.reactor.name,
            reason=reason,
            error=error,
        )
        ours = [*journey.headers(), *((name, text.encode()) for name, text in about)]
        self.metrics.dead_letter("undecodable" if error is None else "handler")
        log.warning("dead letter", reactor=self.reactor.name, task=journey.id, reason=reason)
        await self.outlet.send(
            Outgoing(
                self.reactor.topic.dead_letters,
                source.message.key(),
                source.message.value(),
                [*own_headers(source.message.headers()), *ours],
                partition=source.seat.partition,
            )
        )

    def _finish(self, source: Source) -> None:
        ledger: Ledger = source.seat.memory
        ledger.offsets.finish(source.message.offset())

    def _weigh(self) -> None:
        """Whether there is room for more."""
        if self.core.admission.saturated or self._sends > SENDS_MAX:
            self._room.clear()
        else:
            self._room.set()

    # -- leaving --------------------------------------------------------------------------------

    async def leave(self, seats: Sequence[Seat], wait_s: float) -> None:
        """Begin nothing more for these seats, wait for what runs, cut off what takes longer."""
        for seat in seats:
            seat.memory.leaving = True
        gone = set(seats)
        self.core.admission.withdraw(lambda call: call.record.seat in gone)
        self._weigh()
        work = {task for seat in seats for task in seat.memory.work}
        if work:
            _, slow = await asyncio.wait(work, timeout=wait_s)
            for seat in seats:
                seat.memory.cut = True
            for task in slow:
                task.cancel()
            if slow:
                await asyncio.wait(slow, timeout=CANCEL_S)
