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
from dataclasses import dataclass

import msgspec
import polars as pl

from sinks.drivers.check import check
from sinks.drivers.rows import supported
from sinks.drivers.s3 import frames, names, plan
from sinks.drivers.s3.bucket import Bucket, connect
from sinks.drivers.s3.errors import Changed, Missing
from sinks.drivers.s3.manifest import Live, Manifest, Piece, Retired, VersionFile
from sinks.drivers.s3.pieces import Pieces, counting
from streams.runtime.position import Position
from streams.runtime.sink import FenceRefused, ReadModel, SinkError, SinkUnavailable, Table, Write

__all__ = ["S3Sink", "connect"]

GRACE_S = 120
"""How long a replaced piece can still be read."""

_TRIES = 20
"""Replacements of one object that may come between, before a call gives up."""

Place = tuple[int, str, int]
"""Version, topic, partition."""


@dataclass(frozen=True)
class _Stored:
    manifest: Manifest
    etag: str


class S3Sink:
    """One writer of one read model; see `streams.runtime.sink.Sink`.

    Raises `TypeError` for a model with rankings.
    """

    atomic = True

    def __init__(
        self, model: ReadModel, bucket: Bucket, clock: Callable[[], float] = time.time
    ) -> None:
        supported(model)
        self._tables = names.checked(model)
        self.model = model
        self._bucket = bucket
        self._clock = clock
        self._known: dict[Place, _Stored] = {}
        self._swept: set[Place] = set()

    def live_version(self) -> int:
        found = self._bucket.find(names.live(self.model.name))
        return 1 if found is None else Live.decode(found[0]).version

    def prepare(self, version: int) -> None:
        if self._facts(version) is None:
            self._create(version)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        self._known.pop((version, topic, partition), None)
        stored = self._look(version, topic, partition)
        return None if stored is None else stored.manifest.decoded()

    def write(self, version: int, write: Write) -> None:
        check(self.model, write)
        expected = None if write.expected is None else write.expected.encode().decode()
        place = (version, write.topic, write.partition)
        where = f"{self.model.name} v{version} {write.topic}/{write.partition}"
        for _ in range(_TRIES):
            known = self._known.get(place)
            if known is None or known.manifest.position != expected:
                known = self._opened(version, write)
            if known is None or known.manifest.position != expected:
                raise FenceRefused(f"{where}: the position has moved")
            manifest, gone = self._next(version, known.manifest, write)
            self._known.pop(place, None)
            try:
                etag = self._bucket.swap(
                    names.manifest(self.model.name, *place), manifest.encode(), known.etag
                )
            except Changed:
                continue
            self._known[place] = _Stored(manifest, etag)
            self._clean(place, manifest, gone)
            return
        raise SinkUnavailable(f"{where}: the manifest never stood still")

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        """Pieces that share keys are held in memory together. A version that is written to
        meanwhile may lose the pieces being read: then this raises `SinkUnavailable`.
        """
        shape = self._table(table)
        for (topic, at), manifest in self._manifests(version).items():
            if partition not in (None, at):
                continue
            pieces = Pieces(self._bucket, self.model.name, version, topic, at)
            since = manifest.expired.get(table)
            needed = plan.reads(shape, manifest.tables.get(table, ()), {})
            alone = [([piece], True) for piece in needed.plain]
            for group, plain in [*alone, *((group, False) for group in needed.groups)]:
                try:
                    stored = pl.concat([pieces.read(piece) for piece in group])
                except Missing as error:
                    raise SinkUnavailable(f"{self.model.name} moved on meanwhile") from error
                rows = counting(shape, stored.lazy(), since, plain=plain)
                found = rows.select(*shape.columns, pl.lit(at, pl.Int32).alias("_partition"))
                yield found.collect()

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        found = {at: m.decoded() for at, m in self._manifests(version).items()}
        return {at: position for at, position in found.items() if position is not None}

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        """Two steps: no partition can be listed any more; then each listed one is closed."""
        facts = self._restate(version, sealed=True)
        for topic, partition in facts.partitions:
            self._seal(version, facts, topic, partition, sealed=True)
        return self.positions(version)

    def unseal(self, version: int) -> None:
        found = self._facts(version)
        if found is None:
            return
        for topic, partition in found[0].partitions:
            self._seal(version, found[0], topic, partition, sealed=False)
        self._restate(version, sealed=False)

    def switch(self, version: int) -> None:
        self.prepare(version)
        self._bucket.put(names.live(self.model.name), msgspec.json.encode(Live(version)))

    def versions(self) -> list[int]:
        found = self._bucket.folders(f"{self.model.name}/")
        numbers = sorted(int(name[1:]) for name in found if name[:1] == "v" and name[1:].isdigit())
        return [version for version in numbers if self._facts(version) is not None]

    def drop(self, version: int) -> None:
        if version == self.live_version():
            raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
        if self._facts(version) is None:
            return
        self.seal(version)
        facts = names.version_file(self.model.name, version)
        keys = self._bucket.keys(names.folder(self.model.name, version))
        self._bucket.delete(key for key in keys if key != facts)
        self._bucket.delete([facts])
        self._known = {place: one for place, one in self._known.items() if place[0] != version}
        self._swept = {place for place in self._swept if place[0] != version}

    def close(self) -> None:
        self._bucket.close()

    def _table(self, name: str) -> Table:
        return next(table for table in self._tables if table.name == name)

    def _facts(self, version: int) -> tuple[VersionFile, str] | None:
        found = self._bucket.find(names.version_file(self.model.name, version))
        return None if found is None else (VersionFile.decode(found[0]), found[1])

    def _create(self, version: int) -> None:
        with suppress(Changed):
            key = names.version_file(self.model.name, version)
            self._bucket.swap(key, VersionFile().encode(), None)

    def _restate(
        self, version: int, *, sealed: bool | None = None, more: tuple[str, int] | None = None
    ) -> VersionFile:
        """Change the facts about a version, which is created where it is not there. Raises
        `FenceRefused` for a new partition of a sealed version.
        """
        key = names.version_file(self.model.name, version)
        for _ in range(_TRIES):
            found = self._facts(version)
            if found is None:
                self._create(version)
                continue
            facts, etag = found
            if more is not None and facts.sealed:
                raise FenceRefused(f"{self.model.name} v{version} is sealed")
            changed = VersionFile(
                facts.born,
                facts.sealed if sealed is None else sealed,
                facts.partitions if more is None else tuple({*facts.partitions, more}),
            )
            if changed == facts or (more is not None and more in facts.partitions):
                return facts
            with suppress(Changed):
                self._bucket.swap(key, changed.encode(), etag)
                return changed
        raise SinkUnavailable(f"{key} never stood still")

    def _look(self, version: int, topic: str, partition: int) -> _Stored | None:
        """The manifest as it is stored; raises `FenceRefused` while anything is sealed."""
        found = self._facts(version)
        if found is None:
            return None
        stored = self._stored(version, found[0].born, topic, partition)
        if found[0].sealed or (stored is not None and stored.manifest.sealed):
            raise FenceRefused(f"{self.model.name} v{version} is sealed")
        if stored is not None:
            self._known[version, topic, partition] = stored
        return stored

    def _stored(self, version: int, born: str, topic: str, partition: int) -> _Stored | None:
        found = self._bucket.find(names.manifest(self.model.name, version, topic, partition))
        if found is None:
            return None
        stored = _Stored(Manifest.decode(found[0]), found[1])
        return stored if stored.manifest.born == born else None

    def _opened(self, version: int, write: Write) -> _Stored | None:
        """The manifest, written empty for a first write."""
        stored = self._look(version, write.topic, write.partition)
        if stored is not None or write.expected is not None:
            return stored
        facts = self._restate(version, more=(write.topic, write.partition))
        key = names.manifest(self.model.name, version, write.topic, write.partition)
        foreign = self._bucket.find(key)
        with suppress(Changed):
            self._bucket.swap(key, Manifest(facts.born).encode(), foreign and foreign[1])
        return self._look(version, write.topic, write.partition)

    def _next(self, version: int, now: Manifest, write: Write) -> tuple[Manifest, list[str]]:
        """The manifest after the write, and the objects whose grace is over by then."""
        seq = now.seq + 1
        pieces = Pieces(self._bucket, self.model.name, version, write.topic, write.partition)
        first = 0 if write.expected is None else write.expected.next_offset
        tables = {name: list(found) for name, found in now.tables.items()}
        for table, rows in frames.changed(self.model, write):
            span = range(first, write.position.next_offset)
            old = tables.get(table.name, [])
            tables[table.name] = pieces.added(table, old, rows, span, seq)
        expired = _later(now.expired, write.position.expired_ms, write.expire_before_ms)
        for table in self._tables:
            if table.time is not None and table.name in expired:
                cutoff = expired[table.name]
                tables[table.name] = [
                    p for p in tables.get(table.name, []) if p.ranges[table.time][1] >= cutoff
                ]
        retired, gone = self._retired(now, tables)
        position = write.position.encode().decode()
        return Manifest(now.born, seq, False, position, tables, expired, retired), gone

    def _retired(
        self, now: Manifest, tables: Mapping[str, list[Piece]]
    ) -> tuple[list[Retired], list[str]]:
        at_s = int(self._clock())
        used = {piece.key for pieces in tables.values() for piece in pieces}
        gone = [one.key for one in now.retired if one.at_s + GRACE_S <= at_s]
        kept_ = [one for one in now.retired if one.at_s + GRACE_S > at_s]
        before = {piece.key for pieces in now.tables.values() for piece in pieces}
        new = [Retired(key, at_s) for key in sorted(before - used)]
        return [one for one in [*kept_, *new] if one.key not in used], gone

    def _clean(self, place: Place, manifest: Manifest, gone: list[str]) -> None:
        """Delete what no manifest names or ever will; what fails is left for the next writer.

        A piece of a later `seq` is another writer's, under way. One of this or an earlier `seq`
        was either named by the manifest of that number, which is replaced, or never will be.
        """
        used = manifest.keys()
        with suppress(SinkError):
            if place not in self._swept:
                self._swept.add(place)
                for table in self._tables:
                    version, topic, partition = place
                    prefix = names.pieces(self.model.name, version, table.name, topic, partition)
                    for key in self._bucket.keys(prefix):
                        seq = names.seq(key)
                        if seq is not None and seq <= manifest.seq and key not in used:
                            gone.append(key)
            self._bucket.delete(key for key in gone if key not in used)

    def _manifests(self, version: int) -> dict[tuple[str, int], Manifest]:
        found = self._facts(version)
        if found is None:
            return {}
        facts, _ = found
        stored = {at: self._stored(version, facts.born, *at) for at in sorted(facts.partitions)}
        return {at: one.manifest for at, one in stored.items() if one is not None}

    def _seal(
        self, version: int, facts: VersionFile, topic: str, partition: int, *, sealed: bool
    ) -> None:
        """Close a manifest or open it; one that is not there is written closed."""
        key = names.manifest(self.model.name, version, topic, partition)
        for _ in range(_TRIES):
            found = self._bucket.find(key)
            manifest = Manifest(facts.born) if found is None else Manifest.decode(found[0])
            if manifest.born != facts.born:
                manifest = Manifest(facts.born)
            elif found is not None and manifest.sealed == sealed:
                return
            changed = msgspec.structs.replace(manifest, sealed=sealed, seq=manifest.seq + 1)
            with suppress(Changed):
                self._bucket.swap(key, changed.encode(), found and found[1])
                return
        raise SinkUnavailable(f"{key} never stood still")


def _later(*cutoffs: Mapping[str, int]) -> dict[str, int]:
    """Per table the latest of the cutoffs."""
    found: dict[str, int] = {}
    for one in cutoffs:
        for table, at_ms in one.items():
            found[table] = max(at_ms, found.get(table, at_ms))
    return found
