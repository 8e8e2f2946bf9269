"""What the accepted events of a partition add up to: filter state, tables, timers, known keys.

Owners, standbys, recovery and tests all fold with this. The clock is the newest append time of an
answered command; keys expire by it, so whoever folds the same log forgets the same keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import structlog

from streams.runtime.decider.records import COMMAND_REJECTED
from streams.runtime.decider.rules import Envelope, Event, Reply, Rules
from streams.runtime.decider.state import ABSENT, Image, PartitionState, Rows, Steps
from streams.runtime.position import FilterState

KEYS: Final = "headrace:keys"
"""The runtime's own table: idempotency key → `Known`."""
CLOCK: Final = "headrace:clock"
"""The runtime's own table with one entry, "": the clock."""
NOT_REMEMBERED = frozenset({"duplicate", "key_reused", "failed", "unreadable", "too_large"})
"""Rejections after which the same key may be tried again, or that repeat an earlier verdict."""

REJECTED = COMMAND_REJECTED.fullname
log = structlog.get_logger()


class Known(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is remembered of an idempotency key. `offset` is the event's, -1 while in flight."""

    fingerprint: str
    offset: int
    time_ms: int
    status: int = 0
    body: bytes = b""


class Told(msgspec.Struct, frozen=True, gc=False):
    """A verdict: status, JSON body, and the offset of the event that it is about."""

    status: int
    body: bytes
    offset: int
    replay: bool = False


class FoldFailed(RuntimeError):
    """An accepted event cannot be read or folded: its rules and the log do not belong together."""


def empty(rules: Rules) -> Image:
    """The state before the first event."""
    return Image({**{name: {} for name in rules.tables}, KEYS: {}, CLOCK: {}}, {})


class Folded:
    """The fold of one partition. While an owner decides ahead, `state` is ahead and `filter` and
    `next_offset` are what has been read back.
    """

    def __init__(
        self,
        rules: Rules,
        image: Image,
        *,
        key_ttl_ms: int,
        filter_state: FilterState | None = None,
        next_offset: int = 0,
    ) -> None:
        self.rules = rules
        self._evolve = rules.evolve
        self.state = PartitionState(image)
        self.filter = filter_state or FilterState()
        self.next_offset = next_offset
        self._key_ttl_ms = key_ttl_ms
        self._keys: Rows = self.state.rows(KEYS)
        self._clock: Rows = self.state.rows(CLOCK)
        self._settled_ms = self.clock_ms
        self._order = deque(sorted((known.time_ms, key) for key, known in self._keys.items()))

    @property
    def clock_ms(self) -> int:
        """The newest append time of an answered command; 0 before the first."""
        now: int = self._clock.get("", 0)
        return now

    def known(self, key: str, time_ms: int) -> Known | None:
        """What is remembered of a key at a command's append time."""
        found: Known | None = self._keys.get(key)
        if found is None or found.time_ms <= max(self.clock_ms, time_ms) - self._key_ttl_ms:
            return None
        return found

    def apply(self, event: Event, timer: str = "") -> None:
        """Fold one event into the state; `timer` names the timer that caused it."""
        if timer:
            self.state.cancel(timer)
        elif event.time_ms > self._clock.get("", 0):
            self.state[CLOCK][""] = event.time_ms
        if event.record != REJECTED:
            self._evolve(self.state, event)

    def expect(self, key: str, fingerprint: str) -> None:
        """Note a key whose event is in flight, as part of the decision."""
        self.state[KEYS][key] = Known(fingerprint, -1, self.clock_ms)

    def settle(self, event: Event, envelope: Envelope | None) -> Told | None:
        """The event is on the log, at its offset: what follows from that is not to be taken back.

        `envelope` is that of its command; None for a timer's event. The verdict, if the sender of
        the command waits for one or its key is to be remembered.
        """
        if envelope is None:
            return None
        self.passed(event.time_ms)
        key = envelope.idempotency_key
        if not key and not envelope.reply_to:
            return None
        told = self._verdict(event, key)
        if key and remembered(event):
            known = Known(
                envelope.fingerprint, event.offset, self._settled_ms, told.status, told.body
            )
            self._keys[key] = known
            self._order.append((known.time_ms, key))
        return told

    def passed(self, time_ms: int) -> None:
        """All commands up to that append time are answered on the log: keys expire by it."""
        if time_ms > self._settled_ms:
            self._settled_ms = time_ms
            if self._order and self._order[0][0] <= self._expired_ms:
                self._forget()

    @property
    def _expired_ms(self) -> int:
        return self._settled_ms - self._key_ttl_ms

    def _forget(self) -> None:
        """Drop the keys that no command can meet any more."""
        order, keys, oldest = self._order, self._keys, self._expired_ms
        while order and order[0][0] <= oldest:
            time_ms, key = order.popleft()
            if (found := keys.get(key)) is not None and found.time_ms == time_ms:
                del keys[key]

    def roll_back(self, newest_first: Sequence[Steps]) -> None:
        """Undo decisions that will not be read back."""
        self._order.extendleft((known.time_ms, key) for key, known in self._buried(newest_first))
        self.state.roll_back(newest_first)
        self._forget()

    def image(self, newest_first: Sequence[Steps] = ()) -> Image:
        """A copy of the state at `next_offset`, without these decisions."""
        image = self.state.image(newest_first)
        keys = image.tables[KEYS]
        for key, known in self._buried(newest_first):
            if keys.get(key) is known:
                del keys[key]
        return image

    def _buried(self, newest_first: Sequence[Steps]) -> list[tuple[str, Known]]:
        """Expired keys under a decision in flight that uses the key anew."""
        return [
            (key, before)
            for steps in newest_first
            for rows, key, before in steps
            if rows is self._keys and before is not ABSENT and before.time_ms <= self._expired_ms
        ]

    def _verdict(self, event: Event, key: str) -> Told:
        """What the sender of the command is told. Never raises: the event stands."""
        row: Any = event.row
        if event.record == REJECTED:
            if row.code == "duplicate" and (known := self._keys.get(key)) is not None:
                return Told(known.status, known.body, known.offset, replay=True)
            body = {"code": row.code, "detail": row.detail}
            return Told(row.status, msgspec.json.encode(body), event.offset)
        try:
            reply: Reply = self.rules.reply(event)
            return Told(reply.status, msgspec.json.encode(reply.body), event.offset)
        except Exception as error:
            log.exception("reply rule failed", record=event.record, exc_info=error)
            detail = "the command was carried out, but its reply could not be made"
            told = msgspec.json.encode({"code": "reply_failed", "detail": detail})
            return Told(500, told, event.offset)


def remembered(event: Event) -> bool:
    """Whether the event's idempotency key is kept with its verdict."""
    return not (event.record == REJECTED and event.row.code in NOT_REMEMBERED)
