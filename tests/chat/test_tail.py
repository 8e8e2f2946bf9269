"""A tail gives what every reader counts, wherever it begins and however it is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from connectors.tail import Admitted
from schemas.chat.events import EVENTS
from streams.runtime.decider.codec import with_control_records
from streams.runtime.decider.testing import LogRecord, memory_codec
from streams.runtime.position import FilterState, Position
from tests.chat.desk import Desk, evening

CODEC = memory_codec(with_control_records(EVENTS))


@dataclass
class Message:
    """A record as the client gives it."""

    at: int
    record: LogRecord

    def offset(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> Any:
        return self.record.headers


def messages(desk: Desk) -> list[Message]:
    return [Message(at, record) for at, record in enumerate(desk.log.log)]


def told(admitted: Admitted, some: Sequence[Any]) -> list[Any]:
    return [row for _, row in admitted.take(some).rows]


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_gives_the_accepted_events(seed: int) -> None:
    desk, chance = evening(seed), random.Random(seed)
    log, found = messages(desk), []
    admitted = Admitted(CODEC, 0, None)
    at = 0
    while at < len(log):
        size = chance.choice([1, 2, 3, 100])
        found += told(admitted, log[at : at + size])
        at += size
    assert found == desk.log.events
    assert admitted.next_offset == len(log)


def test_what_a_deposed_writer_says_is_not_passed_on() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    desk.say("bob", "heard")
    zombie = desk.log.log[-1]
    desk.log.crash()  # another writer claims the partition
    desk.say("bob", "goes on")
    wire = [*messages(desk), Message(len(desk.log.log), zombie)]
    repeated = [*wire, Message(len(wire), desk.log.log[-1])]
    stray = [*repeated, Message(len(repeated), LogRecord(b"room", b"\0junk", [], 0))]
    assert told(Admitted(CODEC, 0, None), stray) == desk.log.events


def test_it_goes_on_from_where_a_read_model_is() -> None:
    desk = evening(1)
    log, half = messages(desk), len(desk.log.log) // 2
    first = Admitted(CODEC, 0, None)
    before = told(first, log[:half])
    state = first.state
    stored = Position("topic", half, half, filter_next=state, filter_low=state)
    again = Position.decode(stored.encode())
    assert before + told(Admitted(CODEC, 0, again), log[half:]) == desk.log.events
    blind = Position("topic", half, half, filter_next=FilterState())
    assert told(Admitted(CODEC, 0, blind), log[half : half + 3]) == []
