"""The rules of pastes without a broker: all partitions of the decider, and stores in memory."""

from __future__ import annotations

import hashlib
import itertools
import random
import string
from typing import Any

import msgspec

from connectors.asking import NoVerdict, Refused
from schemas.pastes.contents import ID_CHARS, object_name
from schemas.pastes.events import COMMANDS, CreatePaste, PasteChanged
from schemas.pastes.locks import lock
from streams.pastes import SYSTEM
from streams.runtime.decider.testing import START_MS, DeciderHarness
from streams.runtime.kafka import partition_of
from streams.runtime.topic import Topic

(DECIDER,) = SYSTEM.deciders
(TABLE,) = SYSTEM.projections
(PURGE,) = SYSTEM.reactors
AGENTS = [one.name for one in (DECIDER, TABLE, PURGE)]
PROOF, WRONG = "ab" * 32, "cd" * 32
LOCK = lock("00" * 16, PROOF)
_NONCES = itertools.count(1)


def sha_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def id_for(sha256: str, seed: int) -> str:
    """An id in the partition of a content."""
    chance = random.Random(seed)
    while True:
        made = "".join(chance.choices(string.ascii_letters + string.digits, k=ID_CHARS))
        if partition_of(made, COMMANDS.partitions) == partition_of(sha256, COMMANDS.partitions):
            return made


def upload(sha256: str, at_ms: int = START_MS) -> str:
    """The name of a new object."""
    return object_name(sha256, at_ms, f"{next(_NONCES):016x}")


def create(text: str = "print(1)", seed: int = 1, *, inline: bool = False, **more: Any) -> Any:
    sha256 = sha_of(text)
    asked: dict[str, Any] = {
        "id": sha256, "paste": id_for(sha256, seed), "owner": "alice", "visibility": "unlisted",
        "language": "python", "size": len(text.encode()), "ttl_ms": None, "burn": False,
        "lock": "", "object": "" if inline else upload(sha256),
        "content": text if inline else None,
    }  # fmt: skip
    return CreatePaste(**{**asked, **more})


class Desk:
    """All partitions of the decider; commands go where their key lies."""

    def __init__(self) -> None:
        self.partitions = [DeciderHarness(DECIDER) for _ in range(COMMANDS.partitions)]
        self.down = False

    def send(self, row: Any, **more: Any) -> Any:
        return self.partitions[partition_of(row.id, COMMANDS.partitions)].send(row, **more)

    async def ask(self, topic: Topic, row: Any, key: str = "") -> dict[str, Any]:
        if self.down:
            raise NoVerdict("down")
        answer = self.send(row, idempotency_key=key)
        if answer.status >= 400:
            raise Refused(answer.status, told(answer)["code"], told(answer)["detail"])
        return told(answer)

    def advance(self, ms: int) -> None:
        for one in self.partitions:
            one.advance(ms)

    def crash(self) -> None:
        for one in self.partitions:
            one.crash()

    def events(self) -> list[Any]:
        """Rows about pastes and objects, partition by partition."""
        return [row for one in self.partitions for row in one.events if hasattr(row, "recorded_at")]

    def changes(self) -> list[PasteChanged]:
        return [row for row in self.events() if isinstance(row, PasteChanged)]


def told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found
