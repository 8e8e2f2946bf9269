"""From a command, or a timer that is due, to the one event that records what became of it.

Whatever happens in a rule, in encoding its event or in folding it, exactly one event comes out
(rule A6), and the state is as that event says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import msgspec

from streams.runtime.decider.codec import Codec, Unreadable
from streams.runtime.decider.folded import Folded, remembered
from streams.runtime.decider.records import CommandRejected
from streams.runtime.decider.rules import Command, Decider, Envelope, Event, Rejected, State, Timer
from streams.runtime.decider.state import Steps
from streams.runtime.decider.wire import TEXT_BYTES_MAX, Headers, carried

ACCEPTED = "accepted"
DETAIL_CHARS_MAX = 1_000


class Incoming(msgspec.Struct, frozen=True, gc=False):
    """A command to be decided, and the headers its event repeats. `problem` is a code and a detail
    if the rules are not to see it: `unreadable`, or `failed` when it has killed the process.
    """

    command: Command
    key: bytes
    headers: Headers
    problem: tuple[str, str] | None = None


def incoming_of(
    one: tuple[str, Any] | Unreadable,
    headers: Iterable[tuple[str, bytes | None]] | None,
    key: bytes | None,
    time_ms: int,
    place: tuple[str, int],
) -> Incoming:
    """The command that a record of the command topic decoded to; `place` is `topic/partition` and
    its offset.
    """
    where, offset = place
    envelope, kept = carried(headers, where, offset)
    raw = key or b""
    if len(raw) > TEXT_BYTES_MAX:
        one, raw = Unreadable(f"a key of {len(raw)} bytes"), b""
    text = raw.decode(errors="replace")
    if not isinstance(one, Unreadable):
        return Incoming(Command(one[0], one[1], text, offset, time_ms, envelope), raw, kept)
    command = Command("", None, text, offset, time_ms, envelope)
    return Incoming(command, raw, kept, ("unreadable", one.reason))


class Judged(msgspec.Struct, gc=False):
    """The event, its bytes, the steps that undo it, and a word for it: `ACCEPTED` or a code."""

    event: Event
    value: bytes
    steps: Steps
    code: str
    envelope: Envelope | None = None
    """That of the command; None of a timer."""
    signature: bytes = b""
    """The decision header it was sent with."""
    source_offset: int = -1
    sent_ms: int = 0


class TooLarge(ValueError):
    """The event does not fit into a record."""


class Judge:
    """Decides on the state of a partition, and folds each decision at once."""

    def __init__(self, decider: Decider, codec: Codec, folded: Folded) -> None:
        self._rules = decider.rules
        self._bytes_max = decider.event_bytes_max
        self._encode = codec.encode
        self._apply = folded.apply
        self._folded = folded
        self._state = folded.state
        self._undo = folded.state.undo

    def command(self, one: Incoming) -> Judged | None:
        """The event of a command; None while it cannot be told, because the event of another
        command with the same idempotency key has no offset yet.
        """
        command = one.command
        envelope = command.envelope
        if one.problem is not None:
            code, detail = one.problem
            status = 400 if code == "unreadable" else 500
            judged = self._reject(command.time_ms, _row(command.record, code, detail, status))
        elif not envelope.idempotency_key:
            judged = self._judged(self._rules.decide, command, command.time_ms, "")
        else:
            known = self._folded.known(envelope.idempotency_key, command.time_ms)
            if known is None:
                judged = self._judged(self._rules.decide, command, command.time_ms, "")
                if remembered(judged.event):
                    self._folded.expect(envelope.idempotency_key, envelope.fingerprint)
            elif known.offset < 0:
                return None
            else:
                same = known.fingerprint == envelope.fingerprint
                judged = self._reject(command.time_ms, _repeat(command, known.offset, same=same))
        judged.envelope = envelope
        return judged

    def timer(self, timer: Timer) -> Judged:
        """The event of a timer."""
        return self._judged(self._rules.expire, timer, timer.time_ms, timer.name)

    def _judged(
        self,
        rule: Callable[[State, Any], Any],
        cause: Command | Timer,
        time_ms: int,
        timer: str,
    ) -> Judged:
        state = self._state
        steps = self._undo.steps = []
        try:
            row = rule(state, cause)
            if steps:
                _impure()
            record, value = self._encode(row)
            if len(value) > self._bytes_max:
                _too_large(record, len(value), self._bytes_max)
            event = Event(record, row, time_ms)
            self._apply(event, timer)
        except Rejected as refusal:
            refused = refusal.code, refusal.detail, refusal.status
        except TooLarge as error:
            refused = "too_large", str(error), 413
        except Exception as error:
            refused = "failed", f"{type(error).__name__}: {error}", 500
        else:
            code = row.code if type(row) is CommandRejected else ACCEPTED
            return Judged(event, value, steps, code)
        state.roll_back([steps])
        command = cause.record if isinstance(cause, Command) else ""
        return self._reject(time_ms, _row(command, *refused), timer)

    def _reject(self, time_ms: int, row: CommandRejected, timer: str = "") -> Judged:
        steps = self._state.begin()
        record, value = self._encode(row)
        event = Event(record, row, time_ms)
        self._apply(event, timer)
        return Judged(event, value, steps, row.code)


def _impure() -> NoReturn:
    raise RuntimeError("a rule other than evolve changed the state")


def _too_large(record: str, size: int, size_max: int) -> NoReturn:
    raise TooLarge(f"{record} has {size} bytes, {size_max} fit")


def _row(command: str, code: str, detail: str, status: int) -> CommandRejected:
    told = detail[:DETAIL_CHARS_MAX].encode(errors="replace").decode()
    return CommandRejected(command, code, told, status, -1)


def _repeat(command: Command, original: int, *, same: bool) -> CommandRejected:
    if same:
        detail = "the same command with the same idempotency key was answered before"
        return CommandRejected(command.record, "duplicate", detail, 200, original)
    detail = "the idempotency key was used for another command"
    return CommandRejected(command.record, "key_reused", detail, 422, original)
