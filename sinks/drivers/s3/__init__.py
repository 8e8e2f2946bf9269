"""Read models in S3, as Parquet objects and one manifest per log partition.

S3 has no transaction over two objects, but a compare-and-set on one (`If-Match`, and
`If-None-Match: *` for an absent one). So everything that counts is named by one object:

1. A write uploads its rows as pieces nobody knows of yet. Their names come from the span and the
   bytes; the same rows sent again go to the same object, other rows never replace them.
2. Then it replaces the partition's manifest, which holds the position and the list of pieces, if
   that still is the one it looked at. This is the fence, and rows and position move together.
3. Pieces are merged on the way, in the same replacement; see `plan`.

What a crash leaves behind is a piece that no manifest names; no reader sees it, and the next
writer of the partition deletes it. A merged piece stays for `GRACE_S`, for readers that are at it.
What is stored is in sight after each write, so the projection's `linger_ms` bounds how old the
tail is, and merging bounds how many objects that makes.

A restored bucket must be restored whole (manifests and pieces), with its writers stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import polars as pl

from sinks.drivers.check import check
from sinks.drivers.rows import supported
from sinks.drivers.s3 import frames, names, plan
from sinks.drivers.s3.bucket import Bucket, connect
from sinks.drivers.s3.errors import Changed, Missing
from sinks.drivers.s3.manifest import Manifest, Piece, Retired
from sinks.drivers.s3.pieces import Merging, Pieces, counting
from sinks.drivers.s3.versions import TRIES, Stored, Versions
from streams.runtime.position import Position
from streams.runtime.sink import FenceRefused, ReadModel, SinkError, SinkUnavailable, Write

__all__ = ["S3Sink", "connect"]

GRACE_S = 120
"""How long a replaced piece can still be read."""

Place = tuple[int, str, int]
"""Version, topic, partition."""


class S3Sink:
    """One writer of one read model; see `streams.runtime.sink.Sink`.

    Raises `TypeError` for a model with rankings.
    """

    atomic = True

    def __init__(
        self, model: ReadModel, bucket: Bucket, clock: Callable[[], float] = time.time
    ) -> None:
        supported(model)
        self._tables = {table.name: table for table in names.checked(model)}
        self.model = model
        self._bucket = bucket
        self._versions = Versions(bucket, model.name)
        self._clock = clock
        self._known: dict[Place, Stored] = {}
        self._swept: set[Place] = set()

    def live_version(self) -> int:
        return self._versions.live()

    def prepare(self, version: int) -> None:
        self._versions.create(version)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        self._forget(version, topic, partition)
        stored = self._versions.look(version, topic, partition)
        return None if stored is None else stored.manifest.decoded()

    def write(self, version: int, write: Write) -> None:
        """The manifest of the last write is remembered, so a write costs a request a piece and
        one for the manifest. Where somebody else replaced it and the position still is the
        expected one (a seal that was lifted), it is tried again from there.
        """
        check(self.model, write)
        place = (version, write.topic, write.partition)
        where = f"{self.model.name} v{version} {write.topic}/{write.partition}"
        for _ in range(TRIES):
            stored = self._expected(version, write)
            if stored is None:
                raise FenceRefused(f"{where}: the position has moved")
            self._known.pop(place, None)
            manifest, gone = self._next(version, stored.manifest, write)
            try:
                stored = self._versions.swap(version, place[1:], manifest, stored)
            except Changed:
                continue
            self._known[place] = stored
            self._clean(place, manifest, gone)
            return
        raise SinkUnavailable(f"{where}: the manifest never stood still")

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Pieces that share keys are held in memory together. A version that is written to
        meanwhile may lose the pieces being read: then this raises `SinkUnavailable`.
        """
        shape = self._tables[table]
        for (topic, at), manifest in self._versions.manifests(version).items():
            if partition not in (None, at):
                continue
            pieces = Pieces(self._bucket, self.model.name, version, topic, at)
            since = manifest.expired.get(table)
            for group, plain in plan.reads(shape, manifest.tables.get(table, ()), {}).frames():
                try:
                    stored = pl.concat([pieces.read(piece) for piece in group])
                except Missing as error:
                    raise SinkUnavailable(f"{self.model.name} moved on meanwhile") from error
                rows = counting(shape, stored.lazy(), since, plain=plain)
                yield rows.select(*shape.columns, _partition=pl.lit(at, pl.Int32)).collect()

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        found = {at: m.decoded() for at, m in self._versions.manifests(version).items()}
        return {at: position for at, position in found.items() if position is not None}

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        self._versions.seal(version)
        return self.positions(version)

    def unseal(self, version: int) -> None:
        self._versions.unseal(version)

    def switch(self, version: int) -> None:
        self.prepare(version)
        self._versions.switch(version)

    def versions(self) -> list[int]:
        return self._versions.all()

    def drop(self, version: int) -> None:
        if version == self.live_version():
            raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
        if self._versions.facts(version) is None:
            return
        self._versions.seal(version)
        self._versions.drop(version)
        for place in [place for place in self._known if place[0] == version]:
            self._forget(*place)

    def close(self) -> None:
        self._bucket.close()

    def _forget(self, version: int, topic: str, partition: int) -> None:
        self._known.pop((version, topic, partition), None)
        self._swept.discard((version, topic, partition))

    def _expected(self, version: int, write: Write) -> Stored | None:
        """The manifest with the expected position: as remembered, else as stored; None where it
        is another.
        """
        expected = None if write.expected is None else write.expected.encode().decode()
        stored = self._known.get((version, write.topic, write.partition))
        if stored is None or stored.manifest.position != expected:
            stored = self._versions.look(version, write.topic, write.partition)
        if stored is None and expected is None:
            stored = self._versions.open(version, write.topic, write.partition)
        return stored if stored is not None and stored.manifest.position == expected else None

    def _next(self, version: int, now: Manifest, write: Write) -> tuple[Manifest, list[str]]:
        """The manifest after the write, and the objects whose grace is over by then."""
        seq = now.seq + 1
        pieces = Pieces(self._bucket, self.model.name, version, write.topic, write.partition)
        first = 0 if write.expected is None else write.expected.next_offset
        span = range(first, write.position.next_offset)
        expired = _latest(now.expired, write.position.expired_ms, write.expire_before_ms)
        tables = {
            name: [piece for piece in found if not self._expired(name, piece, expired)]
            for name, found in now.tables.items()
        }
        for table, rows in frames.changed(self.model, write):
            merging = Merging(pieces, table, tables.get(table.name, ()))
            merging.add(rows, span)
            merging.merge(expired.get(table.name))
            tables[table.name] = merging.uploaded(seq)
        retired, gone = self._retired(now, tables)
        position = write.position.encode().decode()
        return Manifest(now.born, seq, False, position, tables, expired, retired), gone

    def _expired(self, name: str, piece: Piece, expired: Mapping[str, int]) -> bool:
        """Whether no row of the piece is left."""
        column = self._tables[name].time if name in self._tables else None
        return column is not None and name in expired and piece.ranges[column][1] < expired[name]

    def _retired(
        self, now: Manifest, tables: Mapping[str, list[Piece]]
    ) -> tuple[list[Retired], list[str]]:
        """The objects that are kept for readers, and those that have been kept for long enough."""
        at_s = int(self._clock())
        new = now.pieces() - {piece.key for found in tables.values() for piece in found}
        kept = [one for one in now.retired if one.at_s + GRACE_S > at_s]
        gone = [one.key for one in now.retired if one.at_s + GRACE_S <= at_s]
        return [*kept, *(Retired(key, at_s) for key in sorted(new))], gone

    def _clean(self, place: Place, manifest: Manifest, gone: list[str]) -> None:
        """Delete what no manifest names or ever will; what fails is left for the next writer.

        A piece of a later `seq` is another writer's, under way. One of this or an earlier `seq`
        was either named by the manifest of that number, which is replaced, or never will be.
        """
        used = manifest.pieces() | {one.key for one in manifest.retired}
        with suppress(SinkError):
            if place not in self._swept:
                self._swept.add(place)
                gone = [*gone, *self._written(place, manifest.seq)]
            self._bucket.delete(key for key in gone if key not in used)

    def _written(self, place: Place, seq: int) -> Iterator[str]:
        """The pieces in the bucket that were written for this manifest or an earlier one."""
        version, topic, partition = place
        for table in self._tables:
            prefix = names.pieces(self.model.name, version, table, topic, partition)
            for key in self._bucket.keys(prefix):
                written_for = names.seq(key)
                if written_for is not None and written_for <= seq:
                    yield key


def _latest(*cutoffs: Mapping[str, int]) -> dict[str, int]:
    """Per table the latest of the cutoffs."""
    found: dict[str, int] = {}
    for one in cutoffs:
        for table, at_ms in one.items():
            found[table] = max(at_ms, found.get(table, at_ms))
    return found
