"""From a command, or a timer that is due, to the one event that records what became of it.

Whatever happens in a rule, in encoding its event or in folding it, exactly one event comes out
(rule A6), and the state is as that event says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from streams.runtime.decider.codec import Codec, Unreadable
from streams.runtime.decider.folded import Folded, remembered
from streams.runtime.decider.records import CommandRejected
from streams.runtime.decider.rules import Command, Decider, Event, Rejected, Timer
from streams.runtime.decider.state import Steps
from streams.runtime.decider.wire import Headers, carried

ACCEPTED = "accepted"
DETAIL_CHARS_MAX = 1_000


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A command to be decided, and the headers its event repeats. `problem` is a code and a detail
    if the rules are not to see it: `unreadable`, or `failed` when it has killed the process.
    """

    command: Command
    headers: Headers
    problem: tuple[str, str] | None = None


def incoming_of(
    one: tuple[str, Any] | Unreadable,
    headers: Iterable[tuple[str, bytes | None]] | None,
    key: bytes | None,
    *,
    offset: int,
    time_ms: int,
    place: str,
) -> Incoming:
    """The command that a record of the command topic at `place` decoded to."""
    envelope, kept = carried(headers, place)
    text = (key or b"").decode(errors="replace")
    if isinstance(one, Unreadable):
        command = Command("", None, text, offset, time_ms, envelope)
        return Incoming(command, kept, ("unreadable", one.reason))
    return Incoming(Command(one[0], one[1], text, offset, time_ms, envelope), kept)


class Judged(msgspec.Struct, frozen=True, gc=False):
    """The event, its bytes, the steps that undo it, and a word for it: `ACCEPTED` or a code."""

    event: Event
    value: bytes
    steps: Steps
    code: str


class TooLarge(ValueError):
    """The event does not fit into a record."""


class Judge:
    """Decides on the state of a partition, and folds each decision at once."""

    def __init__(self, decider: Decider, codec: Codec, folded: Folded) -> None:
        self._rules = decider.rules
        self._bytes_max = decider.event_bytes_max
        self._codec = codec
        self._folded = folded
        self._state = folded.state

    def command(self, one: Incoming) -> Judged | None:
        """The event of a command; None while it cannot be told, because the event of another
        command with the same idempotency key has no offset yet.
        """
        command = one.command
        if one.problem is not None:
            code, detail = one.problem
            status = 400 if code == "unreadable" else 500
            return self._reject(command.time_ms, _row(command.record, code, detail, status))
        key = command.envelope.idempotency_key
        if key and (known := self._folded.known(key, command.time_ms)) is not None:
            if known.offset < 0:
                return None
            same = known.fingerprint == command.envelope.fingerprint
            return self._reject(command.time_ms, _repeat(command, known.offset, same=same))
        rules, state = self._rules, self._state
        judged = self._judged(
            lambda: rules.decide(state, command), command.record, command.time_ms, ""
        )
        if key and remembered(judged.event):
            self._folded.expect(key, command.envelope.fingerprint)
        return judged

    def timer(self, timer: Timer) -> Judged:
        """The event of a timer."""
        rules, state = self._rules, self._state
        return self._judged(lambda: rules.expire(state, timer), "", timer.time_ms, timer.name)

    def _judged(self, rule: Callable[[], Any], command: str, time_ms: int, timer: str) -> Judged:
        steps = self._state.begin()
        try:
            row = rule()
            _check_pure(steps)
            record, value = self._codec.encode(row)
            self._check_size(record, value)
            event = Event(record, row, time_ms)
            self._folded.apply(event, timer=timer)
        except Rejected as refusal:
            refused = _row(command, refusal.code, refusal.detail, refusal.status)
        except TooLarge as error:
            refused = _row(command, "too_large", str(error), 413)
        except Exception as error:
            refused = _row(command, "failed", f"{type(error).__name__}: {error}", 500)
        else:
            code = row.code if type(row) is CommandRejected else ACCEPTED
            return Judged(event, value, steps, code)
        self._state.roll_back([steps])
        return self._reject(time_ms, refused, timer)

    def _check_size(self, record: str, value: bytes) -> None:
        if len(value) > self._bytes_max:
            raise TooLarge(f"{record} has {len(value)} bytes, {self._bytes_max} fit")

    def _reject(self, time_ms: int, row: CommandRejected, timer: str = "") -> Judged:
        steps = self._state.begin()
        record, value = self._codec.encode(row)
        event = Event(record, row, time_ms)
        self._folded.apply(event, timer=timer)
        return Judged(event, value, steps, row.code)


def _check_pure(steps: Steps) -> None:
    if steps:
        raise RuntimeError("a rule other than evolve changed the state")


def _row(command: str, code: str, detail: str, status: int) -> CommandRejected:
    told = detail[:DETAIL_CHARS_MAX].encode(errors="replace").decode()
    return CommandRejected(command, code, told, status, -1)


def _repeat(command: Command, original: int, *, same: bool) -> CommandRejected:
    if same:
        detail = "the same command with the same idempotency key was answered before"
        return CommandRejected(command.record, "duplicate", detail, 200, original)
    detail = "the idempotency key was used for another command"
    return CommandRejected(command.record, "key_reused", detail, 422, original)
