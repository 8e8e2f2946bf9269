"""Events → leases and ranges as they are. Stateless: a row comes from one event."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.ids.events import LEASE_CHANGED, RANGE_ALLOCATED
from sinks import ids as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Upsert


class KeepLeases:
    """The fold of `ids-leases`."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        changes: list[Changes] = []
        told = 0
        at = pl.col("recorded_at").dt.epoch("ms").alias("recorded_ms")
        for record, table in ((LEASE_CHANGED, store.LEASES), (RANGE_ALLOCATED, store.RANGES)):
            rows = batch.of(record.fullname)
            told += rows.height
            kept = rows.with_columns(at, pl.col(OFFSET).alias("offset")).select(
                pl.col(name).cast(dtype) for name, dtype in table.columns.items()
            )
            if kept.height:
                last = kept.unique(list(table.key), keep="last", maintain_order=True)
                changes.append(Upsert(table, last))
        counts = {Fate.APPLIED.value: told, Fate.FILTERED.value: batch.height - told}
        return None, Outcome(changes=changes, counts=counts)

    def provisional(self, state: None) -> list[Changes]:
        return []
