"""Expired buckets: noted when they are first written, deleted when their time has passed.

Reads hide what has expired at once (`Position.expired_ms`); this frees the space. Cassandra's
TTLs cannot: they count from the wall clock, and a rebuild writes old rows today.
"""

# ruff: noqa: S608 - names are checked when the sink is opened, values are parameters

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from sinks.drivers.cassandra import ddl
from sinks.drivers.cassandra.blocks import Block
from sinks.drivers.cassandra.fences import Lane
from sinks.drivers.cassandra.rows import due_statements, named
from sinks.drivers.cassandra.store import Row, Store
from streams.runtime.sink import Table

EXPIRED_BUCKETS_MAX = 500
"""Most buckets of a table that one write deletes."""
NOTED_MAX = 100_000
"""Most buckets that are remembered as noted, so that they are not noted at every write."""

_EVER = -(2**63)


class Expiry:
    """What one writer knows of the buckets that can expire."""

    def __init__(self, store: Store, tables: Sequence[Table]) -> None:
        self._store = store
        self._timed = {table.name: table for table in tables if table.time is not None}
        self._noted: dict[Lane, set[tuple[str, Row]]] = {}
        self._freed_ms: dict[tuple[Lane, str], int] = {}

    def forget(self, lane: Lane) -> None:
        """Another writer may have been here."""
        self._noted.pop(lane, None)
        for name in self._timed:
            self._freed_ms.pop((lane, name), None)

    def note(self, lane: Lane, part: Block, stamp: int) -> None:
        """Make the buckets of these rows known; durable when it returns."""
        table = part.table
        if table.name not in self._timed or not part.upserts.height:
            return
        buckets = part.upserts.select(ddl.due(table)).unique()
        noted = self._noted.setdefault(lane, set())
        fresh = [row for row in buckets.iter_rows() if (table.name, row) not in noted]
        if not fresh:
            return
        frame = pl.DataFrame(fresh, schema=buckets.schema, orient="row")
        self._store.all(due_statements(self._store, lane, table, frame, stamp))
        if len(noted) > NOTED_MAX:
            noted.clear()
        noted.update((table.name, row) for row in fresh)
        at = (lane, table.name)
        self._freed_ms[at] = min(self._freed_ms.get(at, _EVER), *(row[0] for row in fresh))

    def expire(self, lane: Lane, before_ms: Mapping[str, int], stamp: int) -> None:
        """Delete the oldest buckets before these times, `EXPIRED_BUCKETS_MAX` a table."""
        for name, cutoff_ms in before_ms.items():
            self._expire(lane, self._timed[name], cutoff_ms, stamp)

    def _expire(self, lane: Lane, table: Table, cutoff_ms: int, stamp: int) -> None:
        at = (lane, table.name)
        since_ms = self._freed_ms.get(at, _EVER)
        if since_ms >= cutoff_ms:
            return
        columns = ddl.due(table)
        names = named(columns)
        times = lane.build.times(table)
        found = self._store.plain(
            f'SELECT {names} FROM $"{times}" '
            f'WHERE "_partition" = ? AND "{table.time}" >= ? AND "{table.time}" < ? LIMIT ?',
            *(lane.partition, since_ms, cutoff_ms, EXPIRED_BUCKETS_MAX),
        )
        each = " AND ".join(f'"{c}" = ?' for c in ("_partition", *columns))
        rows = f'DELETE FROM $"{lane.build.rows(table)}" USING TIMESTAMP ? WHERE {each}'
        entry = f'DELETE FROM $"{times}" USING TIMESTAMP ? WHERE {each}'
        keys = [(stamp, lane.partition, *bucket) for bucket in found]
        self._store.all(self._store.bound(rows, *key) for key in keys)
        self._store.all(self._store.bound(entry, *key) for key in keys)
        gone = {(table.name, bucket) for bucket in found}
        self._noted.get(lane, set()).difference_update(gone)
        whole = len(found) < EXPIRED_BUCKETS_MAX
        self._freed_ms[at] = cutoff_ms if whole else found[-1][0]
