"""The pieces of one log partition: uploaded, merged, read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from sinks.drivers.s3 import frames, names, plan
from sinks.drivers.s3.bucket import Bucket
from sinks.drivers.s3.manifest import FINAL, Piece
from streams.runtime.sink import Table


@dataclass(frozen=True)
class Pieces:
    """Uploads are in nobody's way: a piece counts once a manifest names it."""

    bucket: Bucket
    model: str
    version: int
    topic: str
    partition: int

    def added(
        self, table: Table, pieces: Sequence[Piece], rows: pl.DataFrame, span: range, seq: int
    ) -> list[Piece]:
        """The table's pieces with these rows as the newest, merged where merging is due."""
        found = list(pieces)
        for cut, part in frames.cuts(table, rows, span.start):
            first, stop = span.start, span.stop
            if frames.has_offset(table):
                low, high = cut * frames.CUT, (cut + 1) * frames.CUT
                first, stop = (min(max(at, low), high) for at in (first, stop))
            found.append(self._put(table, part, range(first, stop), seq=seq, cut=cut, level=0))
        while merge := plan.due(table, found):
            old = found[merge.start : merge.stop]
            found[merge.start : merge.stop] = self._merged(
                table, old, found[: merge.start], seq, merge.level
            )
        return found

    def read(self, piece: Piece) -> pl.DataFrame:
        """The rows of a piece, with tombstones."""
        return frames.decode(self.bucket.get(piece.key)[0])

    def _put(
        self, table: Table, rows: pl.DataFrame, span: range, *, seq: int, cut: int, level: int
    ) -> Piece:
        content = frames.encode(rows)
        key = names.pieces(self.model, self.version, table.name, self.topic, self.partition)
        key += names.piece(span.start, span.stop, seq, content)
        self.bucket.put(key, content)
        return Piece(
            key=key,
            first=span.start,
            next=span.stop,
            rows=len(rows),
            size=len(content),
            cut=cut,
            level=level,
            deletes=bool(rows[frames.DELETED].any()),
            ranges=frames.ranges(rows, table),
        )

    def _merged(
        self, table: Table, old: Sequence[Piece], older: Sequence[Piece], seq: int, level: int
    ) -> list[Piece]:
        """One piece, or none where only tombstones with nothing to hide are left."""
        rows = pl.concat([self.read(piece) for piece in old])
        if len(plan.overlapping(table, old)) < len(old):
            rows = frames.newest(rows.lazy(), table).collect()
        if any(piece.deletes for piece in old) and not plan.shadows(table, old, older):
            rows = rows.filter(~pl.col(frames.DELETED))
        if rows.is_empty():
            return []
        first, stop = min(piece.first for piece in old), max(piece.next for piece in old)
        if level == FINAL and frames.has_offset(table):
            first, stop = old[0].cut * frames.CUT, (old[0].cut + 1) * frames.CUT
        rows = frames.ordered(rows, table)
        return [self._put(table, rows, range(first, stop), seq=seq, cut=old[0].cut, level=level)]


def counting(table: Table, rows: pl.LazyFrame, since: int | None, *, plain: bool) -> pl.LazyFrame:
    """The rows that count of pieces, oldest first: not expired, the newest of their key, not
    deleted. Of plain pieces the last two are known.
    """
    if since is not None and table.time is not None:
        rows = rows.filter(pl.col(table.time) >= since)
    if plain:
        return rows
    return frames.newest(rows, table).filter(~pl.col(frames.DELETED))
