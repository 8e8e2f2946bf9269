"""The rules that worlds run: each event says on which state and by which process it was decided."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from streams.runtime.decider.codec import with_control_records
from streams.runtime.decider.folded import CLOCK, KEYS
from streams.runtime.decider.rules import Command, Decider, Event, Reply, State, Timer
from streams.runtime.decider.state import Image
from streams.runtime.topic import RecordType, Topic

DEADLINE_MS = 2_000
TIMER_MS = 700


class Violation(AssertionError):
    """The log, a reader or a reply is not what it must be."""


@dataclass(frozen=True, slots=True)
class Count:
    name: str
    arm: int


@dataclass(frozen=True, slots=True)
class Counted:
    name: str
    total: int
    arm: int
    by: str
    pre: str


@dataclass(frozen=True, slots=True)
class Rang:
    name: str
    pre: str


def _record(row: type, **types: str) -> RecordType:
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    avsc = {"type": "record", "name": row.__name__, "namespace": "headrace.world", "fields": fields}
    dtypes = {name: {"string": pl.String, "long": pl.Int64}[kind] for name, kind in types.items()}
    return RecordType(f"headrace.world.{row.__name__}", json.dumps(avsc), dtypes, row)


def digest_of(state: Any) -> str:
    """Of what a rule can see: tables and timers, not the runtime's own tables."""
    image = state.image()
    seen = {name: rows for name, rows in image.tables.items() if name not in (KEYS, CLOCK)}
    return Image(seen, image.timers).digest()


class Counting:
    """Counts, and writes down which process decided: deciding again gives another event."""

    version = 1
    tables: ClassVar = {"totals": int, "by": str}

    def __init__(self, process: str = "") -> None:
        self._process = process

    def decide(self, state: State, command: Command) -> Any:
        name, arm = command.row.name, command.row.arm
        total = (state["totals"].get(name) or 0) + 1
        return Counted(name, total, arm, self._process, digest_of(state))

    def expire(self, state: State, timer: Timer) -> Any:
        return Rang(timer.name, digest_of(state))

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        if isinstance(row, Counted):
            state["totals"][row.name] = row.total
            state["by"][row.name] = row.by
            if row.arm:
                state.schedule(row.name, event.time_ms + TIMER_MS)
        else:
            state["totals"][f"rang {row.name}"] = event.time_ms

    def reply(self, event: Event) -> Reply:
        return Reply(200, {"total": event.row.total})


COMMANDS = Topic(
    "world.commands",
    (_record(Count, name="string", arm="long"),),
    *("name", None),
    *(1, "world", ""),
)
EVENTS = with_control_records(
    Topic(
        "world.events",
        (
            _record(Counted, name="string", total="long", arm="long", by="string", pre="string"),
            _record(Rang, name="string", pre="string"),
        ),
        *("name", None, 1, "world", ""),
        decides=COMMANDS.name,
    )
)
DECIDER = Decider(
    "world",
    COMMANDS,
    EVENTS,
    Counting(),
    in_flight_max=3,
    deadline_ms=DEADLINE_MS,
    snapshot_events=10**9,
)
