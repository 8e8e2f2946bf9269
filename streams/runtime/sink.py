"""Where a read model is stored: tables, changes, and the fence that makes a change land once.

A **read model** is a set of tables in one store. It exists in numbered versions, so that a new
one can be built beside the one that answers. A driver (`sinks/drivers/`) keeps, for every
version and log partition, the data and the `Position` it is true for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol

import polars as pl

from streams.runtime.position import Position


class RankMerge(StrEnum):
    """How a ranking merges a new score into a member's stored `(score, reached_ms)`."""

    SUM = "sum"
    """Scores add up; `reached_ms` becomes the later one."""
    BEST = "best"
    """The higher score wins; on equal scores the earlier `reached_ms`."""
    LAST = "last"
    """The later `reached_ms` wins; on equal times the higher score."""


@dataclass(frozen=True)
class Table:
    """Rows by key. `key` columns identify a row inside one log partition, `values` are stored
    beside them. `bucket` (a prefix of `key`) says which rows are stored and read together;
    `time` names the Int64 millisecond column, part of `bucket`, that retention goes by.
    `append` marks a table whose rows are never rewritten with other values (identity rows).
    `indexes` are values that are looked for by themselves: by what they contain (`text`, ASCII
    case ignored) or as they are (`equal`). A store may keep an index for it; answers are the same
    without.
    """

    name: str
    key: Mapping[str, Any]
    values: Mapping[str, Any]
    bucket: tuple[str, ...] = ()
    time: str | None = None
    append: bool = False
    indexes: Mapping[str, Literal["text", "equal"]] = field(default_factory=dict)

    @property
    def columns(self) -> dict[str, Any]:
        """Key columns, then value columns, with their Polars types."""
        return {**self.key, **self.values}


@dataclass(frozen=True)
class Ranking:
    """Members ordered by score (highest first), then by `reached_ms` (earliest first), then by
    member name. `board` columns name the board. Scores are integers and saturate at
    ±(2**53 − 1); `reached_ms` lies within ±2**52. A member belongs to one log partition.
    """

    name: str
    board: Mapping[str, Any]
    member: str
    time: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Board columns, the member column, `score` and `reached_ms`."""
        return {**self.board, self.member: pl.String, "score": pl.Int64, "reached_ms": pl.Int64}


@dataclass(frozen=True)
class Timeline:
    """Feeds of entries by time, newest first, each cut to its newest `entries_max`. `feed` columns
    name the feed; an entry has an id and an `origin`, by which it can be withdrawn. Entries of one
    `time_ms`, which lies within ±2**52, stand in the order of the text of origin and id.

    What was cut off never comes back, so what is stored depends on the order of changes, never on
    how insertions between two withdrawals were grouped.
    """

    name: str
    feed: Mapping[str, Any]
    origin: str
    entry: str
    entries_max: int

    @property
    def key(self) -> dict[str, Any]:
        """What identifies an entry: the columns of its feed, origin and id."""
        return {**self.feed, self.origin: pl.String, self.entry: pl.String}

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of the key, and `time_ms`."""
        return {**self.key, "time_ms": pl.Int64}

    @property
    def bucket(self) -> tuple[str, ...]:
        """What is stored and read together: a feed."""
        return tuple(self.feed)

    @property
    def time(self) -> None:
        """Entries go by number, not by age."""
        return None


Shape = Table | Ranking | Timeline


@dataclass(frozen=True)
class ReadModel:
    """A named set of tables in one store. The name is also agent, consumer group, key prefix
    and metric label, for example `ads-windows`.
    """

    name: str
    tables: tuple[Shape, ...]

    def table(self, name: str) -> Shape:
        """The table of that name; KeyError names what there is."""
        for table in self.tables:
            if table.name == name:
                return table
        raise KeyError(f"{self.name} has {[t.name for t in self.tables]}, not {name}")


@dataclass(frozen=True)
class Upsert:
    """Write these rows: all columns of the table, one row a key."""

    table: Table
    rows: pl.DataFrame


@dataclass(frozen=True)
class Delete:
    """Delete the rows with these keys (frame of the key columns)."""

    table: Table
    rows: pl.DataFrame


@dataclass(frozen=True)
class Rank:
    """Merge these scores into a ranking: one row per board and member."""

    ranking: Ranking
    merge: RankMerge
    rows: pl.DataFrame


@dataclass(frozen=True)
class Unrank:
    """Remove these members from *every* board of the ranking in this log partition."""

    ranking: Ranking
    members: Sequence[str]


@dataclass(frozen=True)
class Insert:
    """Put these entries into their feeds, then cut each to its newest. All columns; an entry that
    is there already gets the new time.
    """

    timeline: Timeline
    rows: pl.DataFrame


@dataclass(frozen=True)
class Withdraw:
    """Take all entries of an origin out of a feed (frame of the feed columns and the origin)."""

    timeline: Timeline
    rows: pl.DataFrame


Changes = Upsert | Delete | Rank | Unrank | Insert | Withdraw


@dataclass(frozen=True)
class Write:
    """One fenced write: changes, in order, and the move of the position from `expected` (None:
    nothing is stored yet) to `position`. An empty span (`expected == position`) is a provisional
    flush and passes the same check (rule C2).
    """

    topic: str
    partition: int
    expected: Position | None
    position: Position
    changes: Sequence[Changes] = ()
    expire_before_ms: Mapping[str, int] = field(default_factory=dict)


class SinkError(Exception):
    """Base of what a driver raises.

    SinkError
    ├── FenceRefused      somebody else moved the position, or the version is sealed: reload
    ├── SinkUnavailable   the store did not answer; the outcome is unknown: retry after a look
    └── SinkRejected      the store understood and refused (type, schema, disk full): `transient`
                          says whether trying again later can help
    """


class FenceRefused(SinkError):
    """The stored position is not the expected one. Nothing of this write was applied."""


class SinkUnavailable(SinkError):
    """No answer, or a broken one. The write may or may not have been applied."""


class SinkRejected(SinkError):
    """The store refused the write and says why; nothing was applied."""

    def __init__(self, message: str, *, transient: bool = False) -> None:
        super().__init__(message)
        self.transient = transient


class Sink(Protocol):
    """One store holding one read model. Synchronous; used from one thread at a time.

    A driver is right when `tests/drivers` passes: replay with other batch borders, partial
    failure, lost reply, zombie with an overlapping batch, two writes in flight, an older
    restored state, a re-created topic, a moved partition.
    """

    model: ReadModel
    atomic: bool
    """True: rows and position move together. False (ClickHouse): after a crash rows may be ahead
    of the position, until the same range is folded again; a fold must not start from them, so a
    projection with `restores` needs an atomic sink.
    """

    def live_version(self) -> int:
        """The version that answers reads and that live agents write; 1 when none is set."""
        ...

    def prepare(self, version: int) -> None:
        """Create what the version needs (tables); a no-op where it is there."""
        ...

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        """The stored position, or None. Raises `FenceRefused` while the version is sealed."""
        ...

    def write(self, version: int, write: Write) -> None:
        """Apply all of `write` or nothing (see `atomic`), and return only when it is durable.
        Expired rows may go some writes later, because a store bounds the work of one write.

        Raises `FenceRefused` when the stored position is not `write.expected`, and
        `SinkUnavailable` when the outcome is unknown: then `load` tells, and the same write may
        be sent again.
        """
        ...

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """The stored rows of a table (all log partitions, or one), without order, all columns of
        the table plus `_partition` (Int32); deleted, superseded and expired
        (`Position.expired_ms`) rows never show.
        """
        ...

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        """Every stored position of the version, sealed or not."""
        ...

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        """Refuse all further writes to the version and return its final positions."""
        ...

    def unseal(self, version: int) -> None:
        """Undo `seal`."""
        ...

    def switch(self, version: int) -> None:
        """Make `version` the live one, atomically for readers."""
        ...

    def versions(self) -> list[int]:
        """The versions that hold anything, ascending."""
        ...

    def drop(self, version: int) -> None:
        """Delete a version that is not live, with its positions; bounded work per step."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...
