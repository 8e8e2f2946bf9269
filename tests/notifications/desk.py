"""The rules of notifications driven by hand: a log of one partition with a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from schemas.notifications import events as e
from streams.notifications.rules import NotificationRules
from streams.notifications.state import TABLES
from streams.runtime.decider.rules import Command, Envelope, Event, Rejected, Reply, Timer

T = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RULES = NotificationRules()


class MemoryTable(dict[Any, Any]):
    """A table that refuses what a snapshot could not hold."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind = kind

    def __setitem__(self, key: Any, value: Any) -> None:
        packed = msgspec.msgpack.encode(value)
        assert msgspec.msgpack.decode(packed, type=self.kind) == value
        super().__setitem__(key, value)


class MemoryState:
    """State of one partition in dictionaries."""

    def __init__(self) -> None:
        self.tables = {name: MemoryTable(kind) for name, kind in TABLES.items()}
        self.timers: dict[str, int] = {}

    def __getitem__(self, table: str) -> Any:
        return self.tables[table]

    def schedule(self, name: str, time_ms: int) -> None:
        self.timers[name] = time_ms

    def cancel(self, name: str) -> None:
        self.timers.pop(name, None)


@dataclass
class Desk:
    """Commands in, events out, timers when their time comes."""

    now: int = T
    state: MemoryState = field(default_factory=MemoryState)
    log: list[Event] = field(default_factory=list)

    def ask(self, row: Any, at: int | None = None) -> Any:
        """Decide a command at a time; due timers go first. Raises `Rejected`."""
        self.pass_to(self.now if at is None else at)
        command = Command(type(row).__name__, row, row.user_id, len(self.log), self.now, ENVELOPE)
        return self._fold(RULES.decide(self.state, command), self.now)

    def refused(self, row: Any, at: int | None = None) -> str:
        """The code with which a command is refused; it has changed nothing."""
        before = self.snapshot()
        try:
            self.ask(row, at)
        except Rejected as rejected:
            if at is None:
                assert self.snapshot() == before
            return rejected.code
        raise AssertionError(f"{row} was accepted")

    def pass_to(self, time_ms: int) -> None:
        """Let time pass, and timers fire in the order they are due."""
        while due := [(at, name) for name, at in self.state.timers.items() if at <= time_ms]:
            at, name = min(due)
            self._fold(RULES.expire(self.state, Timer(name, at)), at)
            assert self.state.timers.get(name, at + 1) > at, "the timer was not re-set"
        self.now = max(self.now, time_ms)

    def reply(self) -> Reply:
        """What is told about the last event."""
        return RULES.reply(self.log[-1])

    def events(self, kind: Any) -> Iterator[Any]:
        """The events of one type."""
        return (event.row for event in self.log if isinstance(event.row, kind))

    def snapshot(self) -> Any:
        """Everything that is remembered."""
        return {n: dict(t) for n, t in self.state.tables.items()}, dict(self.state.timers)

    def replayed(self) -> MemoryState:
        """State folded again from the events."""
        state = MemoryState()
        for event in self.log:
            RULES.evolve(state, event)
        return state

    def _fold(self, row: Any, at: int) -> Any:
        event = Event(type(row).__name__, row, at, len(self.log))
        RULES.evolve(self.state, event)
        self.log.append(event)
        return row


ENVELOPE = Envelope("c-1", subject="shop")


def send(id_: str = "n-1", user: str = "u", **fields: Any) -> e.SendNotification:
    """A notification by mail, if not said otherwise."""
    made: dict[str, Any] = {
        "template": "order_shipped",
        "template_version": "v1",
        "priority": "transactional",
        "channels": ["email"],
        "params": "{}",
        "idempotency_key": "",
        "happened_at": T,
        "send_at": None,
        "expires_at": None,
        "digest_key": "",
        "digest_window_ms": 0,
    }
    return e.SendNotification(notification_id=id_, user_id=user, **(made | fields))


def wants(user: str = "u", **fields: Any) -> e.SetPreferences:
    """Preferences that hold nothing back, if not said otherwise."""
    made: dict[str, Any] = {
        "opt_outs": [],
        "quiet_scope": "none",
        "quiet_start": 22 * 60,
        "quiet_end": 7 * 60,
        "timezone": "Europe/Berlin",
        "locale": "de-AT",
    }
    return e.SetPreferences(user_id=user, **(made | fields))


def desk(user: str = "u", **fields: Any) -> Desk:
    """A desk with a recipient who has a mail address, a phone and a device."""
    made = Desk()
    made.ask(e.SetContact(user, f"{user}@example.org", "+491511234567"))
    made.ask(e.RegisterDevice(user, f"tok-{user}", "android"))
    made.ask(wants(user, **fields))
    return made


def sent(event: Any) -> list[tuple[str, str]]:
    """Channels and addresses of what an event sends."""
    return [(one["channel"], one["address"]) for one in event.deliveries]
