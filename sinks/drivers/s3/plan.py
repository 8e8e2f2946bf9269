"""Which pieces a read needs, which of them share keys, and which are merged next. Pure.

Pieces are merged like the runs of a log-structured merge tree (O'Neil et al., 1996), tiered: of
`FAN` neighbours of one level comes one of the next, so a row is written about log_FAN(writes)
times and a table has a few pieces a level. Of an append table only small pieces are merged so;
once the log has passed a cut, all of it becomes one object, for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sinks.drivers.s3.manifest import FINAL, Piece
from streams.runtime.sink import Table

FAN = 8
SMALL_ROWS = 65_536
"""Pieces of an append table from this size on wait for the cut."""
MERGE_ROWS_MAX = 10_000_000
"""What one write may merge at most."""

Bound = tuple[int | None, int | None]
"""From, inclusive, and to, exclusive; None is without end."""


@dataclass(frozen=True)
class Merge:
    """Pieces `[start, stop)` of a table become one of this level."""

    start: int
    stop: int
    level: int


@dataclass(frozen=True)
class Reads:
    """`plain` pieces hold keys that no other does, and no tombstones: their rows count as they
    are. Of each of `groups` the last row of a key counts.
    """

    plain: Sequence[Piece]
    groups: Sequence[Sequence[Piece]]

    def scans(self) -> Iterator[tuple[Sequence[Piece], bool]]:
        """What can be read as one, and whether it is plain."""
        if self.plain:
            yield self.plain, True
        for group in self.groups:
            yield group, False

    def frames(self) -> Iterator[tuple[Sequence[Piece], bool]]:
        """The same with as little in one as can be."""
        for piece in self.plain:
            yield [piece], True
        for group in self.groups:
            yield group, False


def reads(table: Table, pieces: Sequence[Piece], bounds: Mapping[str, Bound]) -> Reads:
    """What has to be read for the rows within these bounds.

    A key column rules a piece out before the newest row is picked, because all rows of a key
    agree in it. A value column can only rule out a piece whose rows are the newest anyway.
    """
    keys = {column: bound for column, bound in bounds.items() if column in table.key}
    alone, groups = [], []
    for group in overlapping(table, [p for p in pieces if _within(p, keys)]):
        if not plain(group):
            groups.append(group)
        elif _within(group[0], bounds):
            alone.append(group[0])
    return Reads(alone, groups)


def plain(group: Sequence[Piece]) -> bool:
    """Whether every row of the group counts as it is."""
    return len(group) == 1 and not group[0].deletes


def overlapping(table: Table, pieces: Sequence[Piece]) -> list[list[Piece]]:
    """The pieces in groups, in their order; pieces of two groups have no key in common."""
    groups = [list(enumerate(pieces))] if pieces else []
    for column in table.key:
        groups = [part for group in groups for part in _apart(group, column)]
    return [[piece for _, piece in sorted(group)] for group in sorted(groups, key=min)]


def due(table: Table, pieces: Sequence[Piece]) -> Merge | None:
    """The next merge, None when there is nothing to do."""
    if table.append and pieces:
        newest = max(piece.cut for piece in pieces)
        for start, stop in _runs(pieces):
            if pieces[start].cut < newest:
                return Merge(start, stop, FINAL)
    tail = pieces[-FAN:]
    if len(tail) < FAN or len({(piece.level, piece.cut) for piece in tail}) > 1:
        return None
    if table.append and any(piece.rows >= SMALL_ROWS for piece in tail):
        return None
    if tail[0].level == FINAL or sum(piece.rows for piece in tail) > MERGE_ROWS_MAX:
        return None
    return Merge(len(pieces) - FAN, len(pieces), tail[0].level + 1)


def shadows(table: Table, merged: Sequence[Piece], older: Iterable[Piece]) -> bool:
    """Whether a tombstone of the merged pieces may still hide a row of an older one."""
    return any(len(overlapping(table, [piece, one])) == 1 for one in older for piece in merged)


def _runs(pieces: Sequence[Piece]) -> Iterator[tuple[int, int]]:
    """Neighbours of one cut that are not final yet."""
    start = 0
    for at in range(1, len(pieces) + 1):
        if at == len(pieces) or _kind(pieces[at]) != _kind(pieces[start]):
            if pieces[start].level != FINAL:
                yield start, at
            start = at


def _kind(piece: Piece) -> tuple[int, bool]:
    return piece.cut, piece.level == FINAL


def _within(piece: Piece, bounds: Mapping[str, Bound]) -> bool:
    for column, (since, until) in bounds.items():
        low, high = piece.ranges.get(column, (None, None))
        if low is None or high is None:
            continue
        if (since is not None and high < since) or (until is not None and low >= until):
            return False
    return True


def _apart(group: list[tuple[int, Piece]], column: str) -> Iterator[list[tuple[int, Piece]]]:
    """The group where it falls apart in the ranges of a key column."""
    if any(column not in piece.ranges for _, piece in group):
        yield group
        return
    held: list[tuple[int, Piece]] = []
    high = 0
    for at, piece in sorted(group, key=lambda one: one[1].ranges[column]):
        low, top = piece.ranges[column]
        if held and low > high:
            yield held
            held = []
        high = max(high, top) if held else top
        held.append((at, piece))
    yield held
