"""The decider's one working thread: commands in, records read back, owners in between.

Every piece of work arrives through `process`, one at a time: a span of commands, an `Echo` of the
event log, a partition that was assigned, restored or revoked. Spans stay here until their last
command is decided; the command reader waits meanwhile, which is all the backpressure there is.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import structlog

from streams.runtime.decider.codec import Codec, Unreadable
from streams.runtime.decider.echo import Echo
from streams.runtime.decider.folded import Folded
from streams.runtime.decider.judge import Incoming, incoming_of
from streams.runtime.decider.outgoing import Outgoing
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Last, Phase
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.state import Image
from streams.runtime.lane.journal import ALONE, Journal, Suspect, pieces
from streams.runtime.lane.span import Seat, Span
from streams.runtime.position import FilterState

KILLED = ("failed", "the command has ended the process each time it was decided")

TICK_S = 0.02

log = structlog.get_logger()


@dataclass(frozen=True)
class Assigned:
    """The group gave this process a partition of the command topic."""

    seat: Seat


@dataclass(frozen=True)
class Revoked:
    """It took partitions away."""

    partitions: Sequence[int]


@dataclass(frozen=True)
class Restored:
    """The state to begin with is there."""

    partition: int
    folded: Folded
    commands_topic_id: str


Work = Span | Echo | Assigned | Revoked | Restored


@dataclass
class Outside:
    """What the pump asks of the service around it. Called from the pump's thread."""

    restore: Callable[[int], None]
    """Find the state to begin with, and hand over `Restored`."""
    follow: Callable[[int, int], None]
    leave: Callable[[int], None]
    restart: Callable[[Seat, Seat, int], None]
    """Read commands again from an offset, under a new seat; raises `LogMismatch` if the log does
    not have it."""
    span_done: Callable[[], None]
    echo_done: Callable[[], None]
    answer: Callable[[str, Answer], None]
    snapshot: Callable[[int, Image, FilterState, Last], None]
    polled_s: Callable[[], float]
    """When the command reader last turned (monotonic)."""


@dataclass
class _Part:
    """A span of commands, decoded; those before `at` are decided."""

    span: Span
    commands: list[Incoming]
    at: int = 0


@dataclass
class Desk:
    """One partition: its owner, the seat it is owned by, commands that wait."""

    partition: int
    seat: Seat | None = None
    owner: Owner | None = None
    parts: deque[_Part] = field(default_factory=deque)


class _Ports:
    """An owner's world: Kafka, Redis, the clock."""

    def __init__(self, pump: Pump, desk: Desk) -> None:
        self._pump = pump
        self._desk = desk
        self._random = random.SystemRandom()
        self.append = pump.outgoing.to(desk.partition)

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def nonce(self) -> str:
        return secrets.token_hex(16)

    def spread(self) -> float:
        return self._random.random()

    def ask_commands(self, offset: int) -> None:
        self._pump.reseat(self._desk, offset)

    def answer(self, reply_to: str, answer: Answer) -> None:
        self._pump.outside.answer(reply_to, answer)

    def snapshot(self, image: Image, filter_state: FilterState, last: Last) -> None:
        self._pump.outside.snapshot(self._desk.partition, image, filter_state, last)


class Pump:
    """Runs the owners of one process; `codecs` are those of commands and of events. Raises what
    must stop the process.
    """

    def __init__(
        self,
        decider: Decider,
        codecs: tuple[Codec, Codec],
        outgoing: Outgoing,
        journal: Journal,
        *,
        outside: Outside,
        writer: str,
    ) -> None:
        self.decider = decider
        self.outgoing = outgoing
        self.outside = outside
        self.desks: dict[int, Desk] = {}
        self._commands, self._events = codecs
        self._journal = journal
        self._ticked_s = 0.0
        self._writer = writer

    def process(self, work: Work) -> None:
        """Do one piece of work, and all that can be done because of it."""
        match work:
            case Echo():
                self._echo(work)
            case Span():
                self._arrived(work)
            case Assigned(seat):
                self._assigned(seat)
            case Restored():
                self._restored(work)
            case Revoked(partitions):
                for partition in partitions:
                    self._revoked(partition)
        self.outgoing.flush()
        for partition, nonce, reason in self.outgoing.failures():
            desk = self.desks.get(partition)
            if desk is not None and desk.owner is not None:
                log.warning("record lost", partition=partition, reason=reason)
                desk.owner.failed(nonce)

    def stand_by(self, partitions: Sequence[int]) -> None:
        """Fold these partitions without owning them."""
        for partition in partitions:
            if partition not in self.desks:
                self.desks[partition] = Desk(partition)
                self.outside.restore(partition)

    def close(self) -> None:
        """Give up everything in hand; what is on its way may land."""
        for desk in self.desks.values():
            self._give_back(desk)
        self.outgoing.close()

    # -- assignment -----------------------------------------------------------------------------

    def _assigned(self, seat: Seat) -> None:
        desk = self.desks.get(seat.partition)
        if desk is None:
            desk = self.desks[seat.partition] = Desk(seat.partition)
            self.outside.restore(seat.partition)
        self._give_back(desk)
        desk.seat = seat
        if desk.owner is not None:
            desk.owner.assign()

    def _restored(self, work: Restored) -> None:
        desk = self.desks.get(work.partition)
        if desk is None or desk.owner is not None:
            return  # revoked meanwhile
        desk.owner = Owner(
            *(self.decider, work.partition, work.folded, self._events, _Ports(self, desk)),
            writer=self._writer,
            commands_topic_id=work.commands_topic_id,
        )
        self.outside.follow(work.partition, work.folded.next_offset)
        if desk.seat is not None:
            desk.owner.assign()

    def _revoked(self, partition: int) -> None:
        desk = self.desks.get(partition)
        if desk is None:
            return
        self._give_back(desk)
        desk.seat = None
        if desk.owner is not None:
            desk.owner.release()
        if not self.decider.standby:
            del self.desks[partition]
            self.outside.leave(partition)

    def _give_back(self, desk: Desk) -> None:
        """Forget the commands in hand; the reader waits for their spans."""
        while desk.parts:
            desk.parts.popleft()
            self.outside.span_done()

    def reseat(self, desk: Desk, offset: int) -> None:
        """Have the commands read from `offset`; what is in hand is void."""
        self._give_back(desk)
        if desk.seat is not None:
            fresh = Seat(desk.seat.topic, desk.seat.partition)
            self.outside.restart(desk.seat, fresh, offset)
            desk.seat = fresh

    # -- events ---------------------------------------------------------------------------------

    def _echo(self, echo: Echo) -> None:
        try:
            desk = self.desks.get(echo.partition)
            if desk is not None and desk.owner is not None:
                desk.owner.read(echo)
                self._work(desk, desk.owner)
            if echo.partition < 0 or time.monotonic() - self._ticked_s >= TICK_S:
                self._tick()  # also while records of some partitions come all the time
        finally:
            self.outside.echo_done()

    def _tick(self) -> None:
        self._ticked_s = time.monotonic()
        confirmed_ms = int(self.outside.polled_s() * 1_000)
        for desk in self.desks.values():
            if desk.owner is not None:
                desk.owner.tick(confirmed_ms=confirmed_ms, idle=not desk.parts)
                self._work(desk, desk.owner)

    # -- commands -------------------------------------------------------------------------------

    def _arrived(self, span: Span) -> None:
        desk = self.desks.get(span.seat.partition)
        owner = desk.owner if desk is not None else None
        if (
            desk is None
            or owner is None
            or owner.phase is not Phase.OWNING
            or span.seat is not desk.seat
            or not span.messages
        ):
            self.outside.span_done()  # it will be read again once the partition is owned
            return
        desk.parts.append(_Part(span, self._incoming(span)))
        self._work(desk, owner)

    def _incoming(self, span: Span) -> list[Incoming]:
        found: list[Incoming] = []
        for part, suspect in pieces(span, self._journal.suspected(span)):
            decoded: Sequence[tuple[str, Any] | Unreadable]
            if suspect is not None and suspect.guilty:
                decoded = [Unreadable(KILLED[1])] * len(part)  # not even to be looked at
            else:
                with self._noting(part, suspect):
                    decoded = self._commands.decode(part.values())
            where = f"{span.seat.topic}/{span.seat.partition}"
            times, offsets = part.append_ms().tolist(), part.offsets().tolist()
            found += [
                incoming_of(one, headers, key, time_ms, (where, offset))
                for one, headers, key, time_ms, offset in zip(
                    decoded, part.headers(), part.keys(), times, offsets, strict=True
                )
            ]
        return found

    def _work(self, desk: Desk, owner: Owner) -> None:
        """Decide what there is room for."""
        while desk.parts and owner.phase is Phase.OWNING:
            part = desk.parts[0]
            if not self._decide(owner, part):
                return
            if desk.parts and desk.parts[0] is part:
                desk.parts.popleft()
                self._journal.passed(part.span, owner.folded.filter.source_offset + 1)
                self.outside.span_done()

    def _decide(self, owner: Owner, part: _Part) -> bool:
        """Decide a part to its end; False when there is no room."""
        rest = part.span.part(part.at, len(part.span)) if part.at else part.span
        for piece, suspect in pieces(rest, self._journal.suspected(rest)):
            todo = part.commands[part.at : part.at + len(piece)]
            if suspect is not None and suspect.guilty:
                todo = [Incoming(one.command, one.key, one.headers, KILLED) for one in todo]
            with self._noting(piece, suspect):
                taken = owner.decide(todo)
            part.at += taken
            if taken < len(todo):
                return False
        return True

    def _noting(self, piece: Span, suspect: Suspect | None) -> Noting:
        return Noting(self._journal, piece, suspect)


class Noting:
    """Within it, a death of the process is blamed on these records."""

    def __init__(self, journal: Journal, piece: Span, suspect: Suspect | None) -> None:
        self._journal = journal
        self._piece = piece
        self._alone = nullcontext() if suspect is None else ALONE

    def __enter__(self) -> None:
        self._alone.__enter__()
        self._journal.working_on(self._piece)

    def __exit__(self, *_: object) -> None:
        self._journal.finished()
        self._alone.__exit__(None, None, None)
