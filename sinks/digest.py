"""A fingerprint of what a sink holds: equal rows give equal digests, in every store.

A row is its text (`sinks.drivers.rows`) with its log partition, a table the sum of the 128-bit
BLAKE2b hashes (RFC 7693) of its rows: no order, no sorting, one pass. Columns that belong to a
driver never count. A row that shows twice changes the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import polars as pl

from sinks.drivers.rows import encoded
from streams.runtime.sink import Ranking, Shape, Sink


@dataclass(frozen=True)
class TableDigest:
    """Rows of a table, and the sum of their hashes as 32 hexadecimal digits."""

    rows: int
    digest: str


@dataclass(frozen=True)
class Difference:
    """A key whose values differ between two versions; None where a version has no such row."""

    table: str
    partition: int
    key: str
    left: str | None
    right: str | None


def digest(sink: Sink, version: int) -> dict[str, TableDigest]:
    """The digest of every table. The version should be sealed or idle: rows are read in passing."""
    return {table.name: _table_digest(sink, version, table.name) for table in sink.model.tables}


def summary(digests: Mapping[str, TableDigest]) -> str:
    """All tables in one line of 32 hexadecimal digits, to print and to compare."""
    lines = (f"{name} {found.rows} {found.digest}" for name, found in sorted(digests.items()))
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def differences(sink: Sink, left: int, right: int, limit: int = 20) -> list[Difference]:
    """Up to `limit` rows that differ between two versions. Holds one table of one log partition
    in memory at a time, as text.
    """
    found: list[Difference] = []
    partitions = sorted({at for version in (left, right) for _, at in sink.positions(version)})
    for table in sink.model.tables:
        for partition in partitions:
            one, two = (_texts(sink, v, table, partition) for v in (left, right))
            both = one.join(two, on="key", how="full", coalesce=True)
            odd = both.filter(pl.col("values").ne_missing(pl.col("values_right")))
            for key, old, new in odd.sort("key").head(limit - len(found)).iter_rows():
                found.append(Difference(table.name, partition, key, old, new))
            if len(found) >= limit:
                return found
    return found


def _table_digest(sink: Sink, version: int, table: str) -> TableDigest:
    columns = ["_partition", *sink.model.table(table).columns]
    rows, total = 0, np.zeros(2, np.uint64)
    for frame in _sizeable(sink.rows(version, table)):
        texts = encoded(frame, columns).to_list()
        hashes = b"".join(blake2b(text.encode(), digest_size=16).digest() for text in texts)
        rows += len(texts)
        total += np.frombuffer(hashes, "<u8").reshape(-1, 2).sum(axis=0, dtype=np.uint64)
    return TableDigest(rows, total.astype("<u8").tobytes().hex())


def _sizeable(frames: Iterator[pl.DataFrame], rows_min: int = 10_000) -> Iterator[pl.DataFrame]:
    """Small frames together."""
    held: list[pl.DataFrame] = []
    rows = 0
    for frame in frames:
        held.append(frame)
        rows += frame.height
        if rows >= rows_min:
            yield pl.concat(held)
            held, rows = [], 0
    if held:
        yield pl.concat(held)


def _texts(sink: Sink, version: int, table: Shape, partition: int) -> pl.DataFrame:
    key = [*table.board, table.member] if isinstance(table, Ranking) else list(table.key)
    values = [c for c in table.columns if c not in key]
    parts = [
        pl.DataFrame({"key": encoded(frame, key), "values": encoded(frame, values)})
        for frame in _sizeable(sink.rows(version, table.name, partition))
    ]
    return (
        pl.concat(parts) if parts else pl.DataFrame(schema={"key": pl.String, "values": pl.String})
    )
