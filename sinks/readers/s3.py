"""Reads of a read model in S3: lazy frames over Parquet, live version only, for the API and for
whoever analyses.

A read fetches the live version's manifests, rules out the pieces that lie outside the asked bounds,
and leaves the rest to Polars, which fetches the footers and then the columns and row groups that
the filters need. Nothing is cached, so a read is true for the positions of its moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl

from sinks.drivers.s3 import frames, names, plan
from sinks.drivers.s3.bucket import connect
from sinks.drivers.s3.manifest import Live, Manifest, Piece, VersionFile
from sinks.drivers.s3.pieces import counting
from streams.runtime.position import Position, applied
from streams.runtime.settings import S3
from streams.runtime.sink import ReadModel, SinkRejected, SinkUnavailable, Table
from streams.runtime.topic import Topic

LIVE_MS = 500
"""How long the number of the live version is believed."""

Value = int | datetime
Between = Mapping[str, tuple[Value | None, Value | None]]
"""Column → from, inclusive, and to, exclusive; None is without end. Integers and instants."""

_SIGNED = {pl.Int8: 8, pl.Int16: 16, pl.Int32: 32, pl.Int64: 64}
_UNSIGNED = {pl.UInt8: 8, pl.UInt16: 16, pl.UInt32: 32, pl.UInt64: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"ms": timedelta(milliseconds=1), "us": timedelta(microseconds=1)}
_TRIES = 3
_LIMITS: Mapping[Any, tuple[int, int]] = {
    **{t: (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for t, bits in _SIGNED.items()},
    **{t: (0, 2**bits - 1) for t, bits in _UNSIGNED.items()},
}


class S3Reader:
    """The read side of one model. One instance serves any number of concurrent requests, of which
    `concurrency` read rows at a time; the others wait.
    """

    def __init__(
        self,
        model: ReadModel,
        settings: S3,
        *,
        timeout_s: float = 30.0,
        rows_max: int = 10_000,
        concurrency: int = 4,
    ) -> None:
        """Nothing is sent before the first read, so an API starts without its store."""
        self.model = model
        self._tables = {table.name: table for table in names.checked(model)}
        self._bucket = connect(settings, timeout_s)
        self._timeout_s = timeout_s
        self._rows_max = rows_max
        self._slots = asyncio.Semaphore(concurrency)
        self._version = 1
        self._until_s = 0.0
        self._looking = asyncio.Lock()

    async def close(self) -> None:
        """Release the connections."""
        self._bucket.close()

    async def live_version(self) -> int:
        """The version that reads go to."""
        if time.monotonic() >= self._until_s:
            async with self._looking:
                if time.monotonic() >= self._until_s:
                    until_s = time.monotonic() + LIVE_MS / 1000
                    found = await asyncio.to_thread(self._bucket.find, names.live(self.model.name))
                    self._version = 1 if found is None else Live.decode(found[0]).version
                    self._until_s = until_s
        return self._version

    async def query(
        self,
        table: str,
        *,
        between: Between | None = None,
        where: pl.Expr | None = None,
        columns: tuple[str, ...] = (),
        partition: int | None = None,
    ) -> pl.DataFrame:
        """The rows of a table within the bounds for which `where` is true, as a frame of `columns`
        (none: all, with `_partition`), without order:

            await reader.query("lines", between={"at": (noon, one)}, where=pl.col("level") == "E")

        Raises `SinkRejected` past the limits of time or rows, `SinkUnavailable` without an answer.
        """
        for left in reversed(range(_TRIES)):
            rows = await self.scan(table, between=between, partition=partition)
            rows = rows if where is None else rows.filter(where)
            try:
                return await self.collect(rows.select(columns) if columns else rows)
            except _MovedOn:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def scan(
        self, table: str, *, between: Between | None = None, partition: int | None = None
    ) -> pl.LazyFrame:
        """The rows within the bounds, lazily: filter, select, group and sort before `collect`, and
        only what is needed is read. The columns of the table and `_partition`.

        The frame is true for one moment and can be collected for `GRACE_S` of the driver.
        Raises `KeyError` for a bound on a column without ranges.
        """
        shape = self._tables[table]
        bounds = _bounds(shape, between or {})
        parts = [self._empty(shape)]
        for (_, at), manifest in (await self._manifests()).items():
            if partition in (None, at):
                parts += self._frames(shape, at, manifest, bounds)
        return pl.concat(parts)

    async def collect(self, rows: pl.LazyFrame) -> pl.DataFrame:
        """The frame's rows. Raises `SinkRejected` past the limits of time or rows, and
        `SinkUnavailable` without an answer, or when the frame is too old.
        """
        async with self._slots:
            try:
                async with asyncio.timeout(self._timeout_s):
                    found = await rows.head(self._rows_max + 1).collect_async(engine="streaming")
            except TimeoutError as error:
                raise SinkRejected(f"TIMEOUT: more than {self._timeout_s} s of reading") from error
            except FileNotFoundError as error:
                raise _MovedOn(f"{self.model.name} moved on: scan again") from error
            except OSError as error:
                raise SinkUnavailable(f"{type(error).__name__}: {error}") from error
        if len(found) > self._rows_max:
            raise SinkRejected(f"TOO_MANY_ROWS: more than {self._rows_max}")
        return found

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of a bucket (by the values of its columns), of one or all log partitions:
        the columns of the table and `_partition`.
        """
        shape = self._tables[table]
        if set(bucket) != set(shape.bucket):
            raise KeyError(f"{table} is read by its bucket, not by {sorted(bucket)}")
        ranged = [column for column in frames.ranged(shape) if column in bucket]
        between = {column: (bucket[column], _next(bucket[column])) for column in ranged}
        equal = [pl.col(column) == value for column, value in bucket.items()]
        where = pl.all_horizontal(equal) if equal else None
        return await self.query(table, between=between, where=where, partition=partition)

    async def positions(self) -> dict[tuple[str, int], Position]:
        """Topic and log partition → the position that reads from now on are true for, at least;
        empty before anything is stored.
        """
        found = {at: m.decoded() for at, m in (await self._manifests()).items()}
        return {at: position for at, position in found.items() if position is not None}

    async def position(self, topic: str, partition: int) -> Position | None:
        """The position of one log partition; None before its first write."""
        return (await self.positions()).get((topic, partition))

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset not folded yet; of those `topics` that deciders
        write, also of their command topics.
        """
        return applied(await self.positions(), *topics)

    def _frames(
        self, shape: Table, partition: int, manifest: Manifest, bounds: Mapping[str, plan.Bound]
    ) -> list[pl.LazyFrame]:
        since = manifest.expired.get(shape.name)
        needed = plan.reads(shape, manifest.tables.get(shape.name, ()), bounds)
        keys = {column: bound for column, bound in bounds.items() if column in shape.key}
        found = []
        for group, plain in needed.scans():
            rows = _within(shape, self._scanned(shape, group), keys)
            rows = _within(shape, counting(shape, rows, since, plain=plain), bounds)
            found.append(rows.select(*shape.columns, _partition=pl.lit(partition, pl.Int32)))
        return found

    def _scanned(self, shape: Table, pieces: Sequence[Piece]) -> pl.LazyFrame:
        schema = {**shape.columns, frames.DELETED: pl.Boolean}
        return pl.scan_parquet(
            [self._bucket.url(piece.key) for piece in pieces],
            schema=schema,
            glob=False,
            hive_partitioning=False,
            storage_options=self._bucket.storage_options,
        )

    def _empty(self, shape: Table) -> pl.LazyFrame:
        return pl.LazyFrame(schema={**shape.columns, "_partition": pl.Int32})

    async def _manifests(self) -> dict[tuple[str, int], Manifest]:
        """The manifests of the live version, fetched side by side."""
        version = await self.live_version()
        file = names.version_file(self.model.name, version)
        found = await asyncio.to_thread(self._bucket.find, file)
        if found is None:
            return {}
        facts = VersionFile.decode(found[0])
        keys = {at: names.manifest(self.model.name, version, *at) for at in facts.partitions}
        raw = await asyncio.gather(
            *(asyncio.to_thread(self._bucket.find, key) for key in keys.values())
        )
        stored = {at: one[0] for at, one in zip(keys, raw, strict=True) if one is not None}
        manifests = {at: Manifest.decode(stored[at]) for at in sorted(stored)}
        return {at: m for at, m in manifests.items() if m.born == facts.born}


class _MovedOn(SinkUnavailable):
    """A piece went while it was read."""


def _bounds(table: Table, between: Between) -> dict[str, plan.Bound]:
    found: dict[str, plan.Bound] = {}
    for column, (since, until) in between.items():
        if column not in frames.ranged(table):
            raise KeyError(f"{table.name} has no ranges of {column}: use a filter")
        dtype = table.columns[column]
        found[column] = (_physical(since, dtype), _physical(until, dtype))
    return found


def _physical(value: Value | None, dtype: Any) -> int | None:
    if isinstance(value, datetime):
        return -((_EPOCH - value) // _UNITS[dtype.time_unit])  # rounded up, as a bound must be
    return value


def _next(value: Value) -> Value:
    return value + timedelta(microseconds=1) if isinstance(value, datetime) else value + 1


def _within(table: Table, rows: pl.LazyFrame, bounds: Mapping[str, plan.Bound]) -> pl.LazyFrame:
    """The rows inside, in terms that Parquet's statistics can answer."""
    for column, (since, until) in bounds.items():
        dtype = table.columns[column]
        low, high = _LIMITS.get(dtype, (-(2**63), 2**63 - 1))
        if since is not None and since > low:
            inside = pl.col(column) >= pl.lit(min(since, high)).cast(dtype)
            rows = rows.filter(inside if since <= high else pl.lit(False))
        if until is not None and until <= high:
            inside = pl.col(column) < pl.lit(max(until, low)).cast(dtype)
            rows = rows.filter(inside)
    return rows
