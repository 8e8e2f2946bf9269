"""The fence of a lane: one row that only lightweight transactions touch.

A *lane* is one log partition of one build. Its fence moves before any row is written, from the
nonce that a writer saw to a new one, so the order of all writes is fixed there. The move gives
the write its **stamp**, the timestamp of all its rows: the offset it is folded up to in the high
bits, and always above the last one, also where the offset stays (a provisional flush).
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import uuid4

from sinks.drivers.cassandra.ddl import Build
from sinks.drivers.cassandra.store import Store
from streams.runtime.position import Position

STAMP_BITS = 16
"""Below the offset in a stamp: 65,536 flushes before they borrow from the next offset's stamps.
Offsets up to 2**47 fit."""
END_OF_STAMPS = 2**63 - 1


@dataclass(frozen=True)
class Lane:
    """One log partition of one build."""

    build: Build
    topic: str
    partition: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Its key in the shared tables."""
        return (self.build.key, self.topic, self.partition)

    @property
    def name(self) -> str:
        """As the list of a version's lanes has it."""
        return f"{self.topic}/{self.partition}"

    @classmethod
    def named(cls, build: Build, name: str) -> Lane:
        """The inverse of `name`."""
        topic, _, partition = name.rpartition("/")
        return cls(build, topic, int(partition))


@dataclass(frozen=True)
class Fence:
    """What the row says; all of it is absent before the first write.

    `chunks` is how much of the journal holds the rows of the write that moved it last.
    """

    position: Position | None = None
    stamp: int = 0
    nonce: str | None = None
    chunks: int = 0
    sealed: bool = False

    def moved(self, position: Position, chunks: int) -> Fence:
        """The fence after a write."""
        stamp = max(position.next_offset << STAMP_BITS, self.stamp + 1)
        return Fence(position, stamp, uuid4().hex, chunks)


def read(store: Store, lane: Lane) -> Fence:
    """The fence as it is; a transaction that hangs in between is ended first."""
    found = store.look(
        "SELECT position, stamp, nonce, chunks, sealed FROM $fences "
        "WHERE build = ? AND topic = ? AND partition = ?",
        *lane.key,
    )
    if not found:
        return Fence()
    position, stamp, nonce, chunks, sealed = found[0]
    return Fence(
        None if position is None else Position.decode(position),
        stamp or 0,
        nonce,
        chunks or 0,
        bool(sealed),
    )


def move(store: Store, lane: Lane, seen: Fence, new: Fence) -> bool:
    """Move it from what was seen; False when it is no longer that, or is sealed."""
    position = "" if new.position is None else new.position.encode().decode()
    return store.swap(
        "UPDATE $fences SET position = ?, stamp = ?, nonce = ?, chunks = ? "
        "WHERE build = ? AND topic = ? AND partition = ? IF nonce = ? AND sealed = null",
        *(position, new.stamp, new.nonce, new.chunks, *lane.key, seen.nonce),
    )


def seal(store: Store, lane: Lane) -> None:
    """Let nobody move it."""
    store.swap(
        "UPDATE $fences SET sealed = true WHERE build = ? AND topic = ? AND partition = ? "
        "IF sealed = null",
        *lane.key,
    )


def unseal(store: Store, lane: Lane) -> None:
    """Undo `seal`."""
    store.swap(
        "UPDATE $fences SET sealed = null WHERE build = ? AND topic = ? AND partition = ? "
        "IF sealed = true",
        *lane.key,
    )


def forget(store: Store, lane: Lane) -> None:
    """Delete the fence of a dead build."""
    store.swap(
        "DELETE FROM $fences WHERE build = ? AND topic = ? AND partition = ? IF EXISTS", *lane.key
    )
