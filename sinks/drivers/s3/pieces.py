"""The pieces of one log partition: uploaded, merged, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from sinks.drivers.s3 import frames, names, plan
from sinks.drivers.s3.bucket import Bucket
from sinks.drivers.s3.manifest import Piece
from streams.runtime.sink import Table


@dataclass(frozen=True)
class Pieces:
    """The pieces of one log partition in one version."""

    bucket: Bucket
    model: str
    version: int
    topic: str
    partition: int

    def read(self, piece: Piece) -> pl.DataFrame:
        """The rows of a piece, with tombstones."""
        return frames.decode(self.bucket.get(piece.key)[0])

    def put(self, table: Table, draft: Piece, rows: pl.DataFrame, seq: int) -> Piece:
        """Upload the rows of a piece that was drafted for the manifest `seq`. It is in nobody's
        way: a piece counts once a manifest names it.
        """
        content = frames.encode(rows)
        key = names.pieces(self.model, self.version, table.name, self.topic, self.partition)
        key += names.piece(draft.first, draft.next, seq, content)
        self.bucket.put(key, content)
        return msgspec.structs.replace(draft, key=key, size=len(content))


class Merging:
    """A table's pieces while a write adds to them. What is new stays in memory until `uploaded`,
    so nothing is uploaded that the same write merges away.
    """

    def __init__(self, pieces: Pieces, table: Table, found: Sequence[Piece]) -> None:
        self._pieces = pieces
        self._table = table
        self._found = list(found)
        self._drafts: dict[str, pl.DataFrame] = {}

    def add(self, rows: pl.DataFrame, span: range) -> None:
        """Add the rows of a span of offsets as the newest."""
        for cut, part in frames.cuts(self._table, rows, span.start):
            inside = frames.span_of(self._table, span, cut)
            self._found.append(self._draft(part, inside, cut=cut, level=0))

    def merge(self, since: int | None) -> None:
        """Merge what is due. `since` is the event time before which rows no longer count."""
        while due := plan.due(self._table, self._found):
            old = self._found[due.start : due.stop]
            rows = self._merged(old, self._found[: due.start], since)
            span = range(min(one.first for one in old), max(one.next for one in old))
            new = [self._draft(rows, span, cut=old[0].cut, level=due.level)] if len(rows) else []
            self._found[due.start : due.stop] = new

    def uploaded(self, seq: int) -> list[Piece]:
        """The pieces, all of them uploaded."""
        return [
            self._pieces.put(self._table, one, self._drafts[one.key], seq)
            if one.key in self._drafts
            else one
            for one in self._found
        ]

    def _draft(self, rows: pl.DataFrame, span: range, *, cut: int, level: int) -> Piece:
        key = f"draft {len(self._drafts)}"
        self._drafts[key] = rows
        return Piece(
            key=key,
            first=span.start,
            next=span.stop,
            rows=len(rows),
            size=0,
            cut=cut,
            level=level,
            deletes=bool(rows[frames.DELETED].any()),
            ranges=frames.ranges(rows, self._table),
        )

    def _merged(
        self, old: Sequence[Piece], older: Sequence[Piece], since: int | None
    ) -> pl.DataFrame:
        """The rows of pieces, without tombstones that have nothing to hide. Append tables keep
        expired rows, so that their objects depend on the log alone; those go with their object.
        """
        table, drafts = self._table, self._drafts
        rows = pl.concat(
            [drafts[one.key] if one.key in drafts else self._pieces.read(one) for one in old]
        )
        if since is not None and table.time is not None and not table.append:
            rows = rows.filter(pl.col(table.time) >= since)
        if len(plan.overlapping(table, old)) < len(old):
            rows = frames.newest(rows.lazy(), table).collect()
        if any(one.deletes for one in old) and not plan.shadows(table, old, older):
            rows = rows.filter(~pl.col(frames.DELETED))
        return frames.ordered(rows, table)


def counting(table: Table, rows: pl.LazyFrame, since: int | None, *, plain: bool) -> pl.LazyFrame:
    """The rows that count of pieces, oldest first: not expired, the newest of their key, not
    deleted. Of plain pieces the last two are known.
    """
    if since is not None and table.time is not None:
        rows = rows.filter(pl.col(table.time) >= since)
    if plain:
        return rows
    return frames.newest(rows, table).filter(~pl.col(frames.DELETED))
