"""Read models in Cassandra: the fence moves first, and a journal carries the rows over the gap.

Cassandra has no transaction over partitions, but a compare-and-set on one row. A write is

1. **journal**: its rows, packed as one piece, durable before anything points at them;
2. **fence**: a lightweight transaction moves the position, if it is still the expected one and the
   version is not sealed. This is the commit; it also fixes the write's stamp (see `fences`);
3. **rows**: batches with the stamp as their timestamp, so that it does not matter when, how often
   or by whom they are sent: the newest stamp wins, and no clock has a say;
4. **position**: a plain row, by which readers know what the stored rows are true for.

A writer that dies between 2 and 4 leaves a fence ahead of the position; `load`, by whomever,
brings the write to its end from the journal and only then answers. So rows and position move
together for all who fold (`atomic`), and the rows of a refused write never existed. Readers in
that moment see some rows that are newer than the position says, never older ones.

What is not covered: a writer that sleeps between 2 and 3 for longer than `gc_grace_seconds` (10
days) can bring back rows whose deletion Cassandra has forgotten by then.
"""

# ruff: noqa: S608 - names are checked when the sink is opened, values are parameters

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from sinks.drivers.cassandra import ddl, fences, journal, versions
from sinks.drivers.cassandra.blocks import Block, blocks, packed, unpacked
from sinks.drivers.cassandra.ddl import Build
from sinks.drivers.cassandra.errors import MissingTable, committed
from sinks.drivers.cassandra.expiry import Expiry
from sinks.drivers.cassandra.fences import Fence, Lane
from sinks.drivers.cassandra.rows import frame, named, statements
from sinks.drivers.cassandra.store import Store, connect
from sinks.drivers.check import check
from sinks.drivers.rows import supported
from streams.runtime.position import Position
from streams.runtime.sink import FenceRefused, ReadModel, SinkRejected, Table, Write

__all__ = ["Build", "CassandraSink", "Store", "connect"]


class CassandraSink:
    """One writer of one read model; see `streams.runtime.sink.Sink`.

    Raises `TypeError` for a model with rankings. A scan of one log partition reads the whole
    table, unless the table has no `bucket`.
    """

    atomic = True

    def __init__(self, model: ReadModel, store: Store) -> None:
        supported(model)
        self._tables = ddl.checked(model)
        self.model = model
        self._store = store
        self._builds: dict[int, Build] = {}
        self._seen: dict[Lane, Fence] = {}
        self._expiry = Expiry(store, self._tables)

    def live_version(self) -> int:
        return versions.live(self._store, self.model.name)

    def prepare(self, version: int) -> None:
        known = versions.read(self._store, self.model.name, version)
        ready = self._builds.get(version)
        if known is None or known.state == versions.DROPPING or known.build != ready:
            known = versions.make(self._store, self.model.name, version, self._tables)
            versions.agree(self._store, known.build, self._tables)
        self._builds[version] = known.build

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        found = versions.read(self._store, self.model.name, version)
        if found is None or found.build != self._builds.get(version):
            self._builds.pop(version, None)
        if found is None:
            return None
        if found.state != versions.OPEN:
            raise FenceRefused(f"{self.model.name} v{version} is {found.state}")
        lane = Lane(found.build, topic, partition)
        self._expiry.forget(lane)
        fence = self._settled(lane)
        if fence.sealed:
            raise FenceRefused(f"{self.model.name} v{version} is sealed")
        self._seen[lane] = fence
        return fence.position

    def write(self, version: int, write: Write) -> None:
        check(self.model, write)
        parts = blocks(self.model, write)
        lane = self._lane(version, write)
        fence = self._commit(lane, write, journal.chunks(packed(parts)))
        with committed():
            self._finish(lane, fence, parts)
            self._expiry.expire(lane, write.expire_before_ms, fence.stamp)
        self._seen[lane] = fence

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        shape = self.model.table(table)
        found = versions.read(self._store, self.model.name, version)
        if found is None or not isinstance(shape, Table):
            return
        since = since_ms(self._positions(found.build), table)
        columns = {**shape.columns, "_partition": pl.Int32}
        direct = partition is not None and not shape.bucket
        cql = f'SELECT {named(columns)} FROM $"{found.build.rows(shape)}"'
        pages = self._store.pages(
            cql + (' WHERE "_partition" = ?' if direct else ""), *([partition] if direct else [])
        )
        try:
            for page in pages:
                shown = visible(frame(page, columns), shape, since, partition)
                if shown.height:
                    yield shown
        except MissingTable:
            return

    def positions(self, version: int) -> dict[tuple[str, int], Position]:
        found = versions.read(self._store, self.model.name, version)
        return {} if found is None else self._positions(found.build)

    def seal(self, version: int) -> dict[tuple[str, int], Position]:
        """No lane can be registered any more; then each known one is closed, and what its last
        writer did not bring to an end is.
        """
        build = versions.make(self._store, self.model.name, version, self._tables).build
        versions.become(self._store, build, versions.SEALED)
        for lane in self._lanes(build):
            fences.seal(self._store, lane)
            self._settled(lane)
        return self._positions(build)

    def unseal(self, version: int) -> None:
        found = versions.read(self._store, self.model.name, version)
        if found is None or found.state != versions.SEALED:
            return
        for lane in found.lanes:
            fences.unseal(self._store, lane)
        versions.become(self._store, found.build, versions.OPEN)

    def switch(self, version: int) -> None:
        versions.switch(self._store, self.model.name, version)

    def versions(self) -> list[int]:
        return versions.numbers(self._store, self.model.name)

    def drop(self, version: int) -> None:
        if version == self.live_version():
            raise ValueError(f"{self.model.name} v{version} is live and cannot be dropped")
        self._builds.pop(version, None)
        found = versions.read(self._store, self.model.name, version)
        if found is None:
            return
        versions.become(self._store, found.build, versions.DROPPING)
        final = versions.read(self._store, self.model.name, version)
        if final is not None and final.build == found.build:
            versions.erase(self._store, final)

    def close(self) -> None:
        self._store.close()

    def _lane(self, version: int, write: Write) -> Lane:
        build = self._builds.get(version)
        if build is None:
            found = versions.read(self._store, self.model.name, version)
            if found is None and write.expected is not None:
                raise FenceRefused(f"{self.model.name} v{version} is gone")
            self.prepare(version)
            build = self._builds[version]
        return Lane(build, write.topic, write.partition)

    def _lanes(self, build: Build) -> Sequence[Lane]:
        found = versions.read(self._store, self.model.name, build.version)
        return () if found is None else found.lanes

    def _commit(self, lane: Lane, write: Write, parts: list[bytes]) -> Fence:
        """Move the fence, or raise `FenceRefused`. A fence that was seen long ago may have been
        moved by others, a flush even without moving the position: then look, and try again.
        """
        where = f"{lane.build.key} {lane.name}"
        seen = self._seen.pop(lane, None)
        if write.expected is None and not versions.register(self._store, lane):
            self._builds.pop(lane.build.version, None)
            raise FenceRefused(f"{where}: the version is sealed or gone")
        while True:
            fresh = seen is None
            fence = self._settled(lane) if seen is None else seen
            seen = None
            if fence.sealed:
                raise FenceRefused(f"{where}: the version is sealed")
            if fence.position == write.expected:
                new = fence.moved(write.position, len(parts))
                journal.put(self._store, lane, fence, new, parts)
                if fences.move(self._store, lane, fence, new):
                    return new
            elif fresh:
                self._builds.pop(lane.build.version, None)
                raise FenceRefused(f"{where}: the position has moved")

    def _settled(self, lane: Lane) -> Fence:
        """The fence, once the write that moved it last is all in its tables."""
        while True:
            fence = fences.read(self._store, lane)
            if fence.nonce is None or self._applied(lane) == fence.nonce:
                return fence
            data = journal.get(self._store, lane, fence)
            if data is not None:
                with committed():
                    self._finish(lane, fence, unpacked(self.model, data))
                return fence
            if self._applied(lane) != fence.nonce == fences.read(self._store, lane).nonce:
                raise SinkRejected(f"{lane.build.key} {lane.name}: the journal is lost, rebuild")

    def _finish(self, lane: Lane, fence: Fence, parts: Sequence[Block]) -> None:
        """Rows first, durable; then the position that says so."""
        for part in parts:
            self._expiry.note(lane, part, fence.stamp)
            self._store.all(statements(self._store, lane, part, fence.stamp))
        if fence.position is not None:
            self._store.plain(
                "INSERT INTO $positions (build, topic, partition, position, nonce) "
                "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
                *(*lane.key, fence.position.encode().decode(), fence.nonce, fence.stamp),
            )

    def _applied(self, lane: Lane) -> str | None:
        found = self._store.plain(
            "SELECT nonce FROM $positions WHERE build = ? AND topic = ? AND partition = ?",
            *lane.key,
        )
        return found[0][0] if found else None

    def _positions(self, build: Build) -> dict[tuple[str, int], Position]:
        pages = self._store.pages(
            "SELECT topic, partition, position FROM $positions WHERE build = ?", build.key
        )
        return {(t, p): Position.decode(raw) for page in pages for t, p, raw in page}


def since_ms(positions: dict[tuple[str, int], Position], table: str) -> dict[int, int]:
    """Log partition → the time before which rows of a table no longer count."""
    since: dict[int, int] = {}
    for (_, partition), position in positions.items():
        if table in position.expired_ms:
            at_ms = position.expired_ms[table]
            since[partition] = max(at_ms, since.get(partition, at_ms))
    return since


def visible(
    rows: pl.DataFrame, shape: Table, since: dict[int, int], partition: int | None = None
) -> pl.DataFrame:
    """The rows of a log partition (None: of all) that have not expired."""
    if partition is not None:
        rows = rows.filter(pl.col("_partition") == partition)
    if shape.time is not None and since:
        least = pl.col("_partition").replace_strict(since, default=None, return_dtype=pl.Int64)
        rows = rows.filter(least.is_null() | (pl.col(shape.time) >= least))
    return rows
