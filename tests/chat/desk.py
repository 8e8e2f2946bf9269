"""The rules of chat without a broker: one partition, and what its members do."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from schemas.chat.events import (
    ChangeMembers,
    ChangeMessage,
    ConversationChanged,
    MoveReceipt,
    SendMessage,
    StartConversation,
)
from streams.chat import SYSTEM
from streams.runtime.decider.testing import DeciderHarness

(DECIDER,) = SYSTEM.deciders
(HISTORY,) = SYSTEM.projections
(PUSH,) = SYSTEM.reactors
ROOM = "room"


def told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found


class Desk:
    """Asks for things in the name of people."""

    def __init__(self) -> None:
        self.log = DeciderHarness(DECIDER)

    def start(self, by: str = "alice", *others: str, kind: str = "group", room: str = ROOM) -> Any:
        return self.log.send(StartConversation(room, by, kind, "Lunch", list(others)))  # type: ignore[arg-type]

    def say(self, by: str, body: str, id_: str = "", reply_to: int = 0, room: str = ROOM) -> Any:
        row = SendMessage(room, by, id_ or body, body, reply_to)
        return self.log.send(row, idempotency_key=f"{by}\n{id_}" if id_ else "")

    def change(self, by: str, of: int, body: str | None, room: str = ROOM) -> Any:
        return self.log.send(ChangeMessage(room, by, of, body))

    def members(self, by: str, add: Any = (), remove: Any = (), room: str = ROOM) -> Any:
        return self.log.send(ChangeMembers(room, by, list(add), list(remove)))

    def mark(self, by: str, delivered: int, read: int = 0, room: str = ROOM) -> Any:
        return self.log.send(MoveReceipt(room, by, delivered, read))

    @property
    def entries(self) -> list[ConversationChanged]:
        return [row for row in self.log.events if isinstance(row, ConversationChanged)]


def evening(seed: int, turns: int = 120) -> Desk:
    """Three rooms, six people, everything that can happen, crashes of the decider in between."""
    chance, desk = random.Random(seed), Desk()
    people = [f"p{n}" for n in range(6)]
    rooms = ["red", "green", "blue"]
    for room in rooms:
        desk.start(people[0], *people[1:4], room=room)
    for n in range(turns):
        room, who = chance.choice(rooms), chance.choice(people)
        match chance.randrange(10):
            case 0:
                desk.members(who, add=[chance.choice(people)], room=room)
            case 1:
                desk.members(who, remove=[chance.choice(people[1:])], room=room)
            case 2:
                desk.change(who, chance.randrange(1, 30), chance.choice([None, "other"]), room)
            case 3:
                desk.mark(who, chance.randrange(40), chance.randrange(40), room)
            case 4:
                desk.say(who, "again", id_=f"m{chance.randrange(n + 1)}", room=room)
            case _:
                desk.say(who, f"word {n}", id_=f"m{n}", room=room)
        if chance.random() < 0.05:
            desk.log.crash()
    return desk
