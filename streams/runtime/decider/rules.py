"""What a decider is made of: commands in, one event out for each, state as the fold of the events.

A decider is the only writer of its partition of an event topic, so what it decides needs no lock.
Its rules are pure: `decide` looks at state and command and returns the event, `evolve` folds an
event into the state, `reply` says what the caller is told. The runtime does the rest (research
rules A1–A12): ownership, the log, idempotency keys, timers, snapshots, replies.

One command is one event. Several consequences of a command are one event with an array in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from streams.runtime.topic import Topic


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """What travels with a command in its headers, beside what the command says.

    - `correlation_id`: names the command in replies and traces; never empty.
    - `reply_to`: where its sender listens; "" when nobody does.
    - `idempotency_key`: scope and key as one text; "" when the sender gave none.
    - `fingerprint`: digest of what was asked, so that a key used for something else is refused.
    - `subject`: who asks, as authenticated by the API.
    """

    correlation_id: str
    reply_to: str = ""
    idempotency_key: str = ""
    fingerprint: str = ""
    subject: str = ""


class Command(msgspec.Struct, frozen=True, gc=False):
    """One command of the log. `time_ms` is the log's append time of it: the only clock that a
    rule may look at, and the same for whoever decides the command.
    """

    record: str
    """The record's full name."""
    row: Any
    """The typed row, as generated in `schemas/<system>/events.py`."""
    key: str
    offset: int
    time_ms: int
    envelope: Envelope


class Timer(msgspec.Struct, frozen=True, gc=False):
    """A timer that has come due. `time_ms` is the time it was set to, not the time now."""

    name: str
    time_ms: int


class Event(msgspec.Struct, frozen=True, gc=False):
    """One event, to be folded. `time_ms` is the time of what caused it: the command's append time,
    or the time a timer was set to. `offset` is the event's own in `reply`, and -1 in `evolve`: it
    is not known yet when a decision is folded ahead of the log.
    """

    record: str
    row: Any
    time_ms: int
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Reply:
    """What the sender of a command is told: an HTTP status and a JSON object."""

    status: int
    body: Mapping[str, Any] = field(default_factory=dict)


class Rejected(Exception):
    """Raised by `decide`: the command is refused by a rule. It is recorded as `CommandRejected` and
    changes no state. `code` is for programs (`insufficient_funds`), `detail` for people.
    """

    def __init__(self, code: str, detail: str, *, status: int = 409) -> None:
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail
        self.status = status


class Table(Protocol):
    """Values by key. Keys are str, int or tuples of them. Values are *immutable* (a frozen
    `msgspec.Struct`, a tuple, a number, a string), so that what is undone can be put back.
    """

    def get(self, key: Any) -> Any | None: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __contains__(self, key: object) -> bool: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __delitem__(self, key: Any) -> None: ...
    def __len__(self) -> int: ...
    def items(self) -> Iterator[tuple[Any, Any]]: ...


class State(Protocol):
    """The state of one partition: tables by name, and timers. Only `evolve` changes it.

    A timer fires once: it is gone when `evolve` gets its event. Timers due at or before a command's
    append time fire before the command is decided, earliest first, then by name.
    """

    def __getitem__(self, table: str) -> Table: ...
    def schedule(self, name: str, time_ms: int) -> None:
        """Set the timer of that name; an earlier setting of it is forgotten."""
        ...

    def cancel(self, name: str) -> None:
        """Forget the timer of that name, if it is set."""
        ...


class Rules(Protocol):
    """The rules of one decider; pure, without clock, randomness, I/O or hidden state."""

    version: int
    """Of `evolve`: a snapshot that another version wrote is not used."""
    tables: Mapping[str, Any]
    """Type of the values of each table, as msgspec decodes it from a snapshot."""

    def decide(self, state: State, command: Command) -> Any:
        """The event (a row of the event topic) that the command leads to. Raises `Rejected`.
        Changes nothing. Whatever else it raises is recorded as `CommandRejected`, code `failed`.
        """
        ...

    def expire(self, state: State, timer: Timer) -> Any:
        """The event that a due timer leads to. `evolve` may set the timer again. Whatever this
        raises is recorded as `CommandRejected`, code `failed`, and the timer is gone.
        """
        ...

    def evolve(self, state: State, event: Event) -> None:
        """Fold one event. It must not fail on an event that `decide` or `expire` returned; if it
        does before the event is recorded, the command is recorded as `failed` instead. It is not
        asked about `CommandRejected`, which changes nothing.
        """
        ...

    def reply(self, event: Event) -> Reply:
        """What the sender of the command is told about the event; rejections are told by the
        runtime.
        """
        ...


@dataclass(frozen=True)
class Decider:
    """One agent: commands → events, single writer of its partition.

    - `name`: agent, consumer group, key prefix of snapshots, metric label.
    - `commands` and `events` have the same number of partitions and the same keys.
    - `in_flight_max` bounds decisions that are not read back yet. A few milliseconds' worth is
      enough to keep the log busy; more only leaves the processor's cache.
    - `snapshot_events` is how many events lie between two snapshots at most.
    - `idempotency_ttl_ms`: how long a key is remembered, by append time of commands.
    - `event_bytes_max`: a larger event is recorded as `CommandRejected`, code `too_large`.
    - `deadline_ms`: how long a writer waits to read back what it wrote before it gives up its
      epoch and claims anew; above the producer's delivery timeout.
    - `standby`: other processes fold the events, too, so that taking over needs no recovery.
    """

    name: str
    commands: Topic
    events: Topic
    rules: Rules
    in_flight_max: int = 2_048
    snapshot_events: int = 200_000
    idempotency_ttl_ms: int = 7 * 24 * 3_600_000
    event_bytes_max: int = 900_000
    deadline_ms: int = 15_000
    standby: bool = False
