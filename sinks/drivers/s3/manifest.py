"""What the driver stores beside the rows: manifests, and the facts about a version. JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec

from streams.runtime.position import Position

FINAL = 99
"""The level of a piece that is never merged again."""


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One Parquet object: rows of a table and log partition, a key once, perhaps as deleted.

    - `key`: of the object.
    - `first`, `next`: the offsets whose changes are in it.
    - `rows`, `size`: rows with tombstones, and bytes.
    - `cut`: which multiple of the cut an append table's offsets lie in (0 for other tables).
    - `level`: how often its rows were merged, or `FINAL`.
    - `deletes`: whether there are tombstones.
    - `ranges`: smallest and largest value of every integer and instant column with any.
    """

    key: str
    first: int
    next: int
    rows: int
    size: int
    cut: int = 0
    level: int = 0
    deletes: bool = False
    ranges: Mapping[str, tuple[int, int]] = {}


class Retired(msgspec.Struct, frozen=True):
    """An object that is no longer part of the table, but of what somebody may be reading."""

    key: str
    at_s: int


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that counts of one log partition. One object, replaced by compare-and-set only, so rows
    and position move together.

    - `born`: of the version; a manifest of a dropped version is none.
    - `seq`: grows by one with every replacement.
    - `position`: encoded; None before the first write.
    - `tables`: pieces in the order they were written; of rows with one key the last counts.
    - `expired`: the event time before which a table's rows no longer count.
    """

    born: str
    seq: int = 0
    sealed: bool = False
    position: str | None = None
    tables: Mapping[str, Sequence[Piece]] = {}
    expired: Mapping[str, int] = {}
    retired: Sequence[Retired] = ()

    def decoded(self) -> Position | None:
        """The position."""
        return None if self.position is None else Position.decode(self.position)

    def pieces(self) -> set[str]:
        """The objects that count."""
        return {piece.key for pieces in self.tables.values() for piece in pieces}

    def encode(self) -> bytes:
        """The object's bytes."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def decode(cls, raw: bytes) -> Manifest:
        """The inverse of `encode`."""
        return msgspec.json.decode(raw, type=cls)


def _born() -> str:
    return uuid4().hex


class VersionFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """The facts about a version. A partition is listed before its first manifest is written, so
    that a seal knows all there can be.
    """

    born: str = msgspec.field(default_factory=_born)
    sealed: bool = False
    partitions: tuple[tuple[str, int], ...] = ()

    def encode(self) -> bytes:
        """The object's bytes."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def decode(cls, raw: bytes) -> VersionFile:
        """The inverse of `encode`."""
        return msgspec.json.decode(raw, type=cls)


class Live(msgspec.Struct, frozen=True):
    """Which version answers."""

    version: int = 1

    @classmethod
    def decode(cls, raw: bytes) -> Live:
        """The object's content."""
        return msgspec.json.decode(raw, type=cls)
