"""What readers of a system ask of the store that has its rows by bucket."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import polars as pl

from streams.runtime.position import Position
from streams.runtime.topic import Topic


class Rows(Protocol):
    """Reads of one model; `sinks.readers.cassandra.CassandraReader` answers, tests have one in
    memory. Where a `partition` is given, only rows of that log partition are looked at.
    """

    async def get(
        self, table: str, key: Mapping[str, Any], partition: int | None = None
    ) -> dict[str, Any] | None:
        """The row with this key; None without one."""
        ...

    async def bucket(
        self, table: str, bucket: Mapping[str, Any], partition: int | None = None
    ) -> pl.DataFrame:
        """All rows of a bucket: the columns of the table and `_partition`."""
        ...

    async def page(
        self,
        table: str,
        prefix: Mapping[str, Any],
        limit: int,
        *,
        after: Sequence[Any] | None = None,
        descending: bool = False,
        partition: int | None = None,
    ) -> pl.DataFrame:
        """The first `limit` rows whose key begins with `prefix`, in key order, behind `after`."""
        ...

    async def positions(self) -> dict[tuple[str, int], Position]:
        """Topic and log partition → the position that rows are true for, at least."""
        ...

    async def applied(self, *topics: Topic) -> dict[tuple[str, int], int]:
        """Topic and partition → the first offset not folded yet; of those `topics` that deciders
        write, also of their command topics.
        """
        ...

    async def close(self) -> None:
        """Release the connections."""
        ...
