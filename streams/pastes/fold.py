"""Events → pastes as they stand, their small contents, and where to find them. Without state."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.pastes.events import PASTE_CHANGED
from sinks import pastes as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Delete, Table, Upsert

LIVE = pl.col("ended") == ""
LISTED = (pl.col("visibility") == "public") & ~pl.col("burn")


class KeepPastes:
    """The last word about each paste, and about each content.

    A content is in the event of the first paste that has it, and is deleted with the last: both
    lie in one partition, so whatever a batch holds of a content is in the order it was decided in.
    """

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows = batch.of(PASTE_CHANGED.fullname).with_columns(
            pl.col("recorded_at").dt.epoch("ms").alias("changed_ms"),
            pl.col("created_ms").floordiv(store.DAY_MS).mul(store.DAY_MS).alias("day_ms"),
            pl.col(OFFSET).alias("offset"),
        )
        last = rows.unique("id", keep="last", maintain_order=True)
        listed = last.filter(LISTED)
        told = rows.filter(pl.col("change") != "purged")
        changes = [
            *_written(store.PASTES, last),
            *_written(store.OWNED, last.filter(LIVE)),
            *_deleted(store.OWNED, last.filter(~LIVE)),
            *_written(store.LISTED, listed.filter(LIVE)),
            *_deleted(store.LISTED, listed.filter(~LIVE)),
            *_contents(store.CONTENTS, told.filter(pl.col("object") == ""), told),
            *_contents(store.OBJECTS, told.filter(pl.col("object") != ""), told),
        ]
        counts = {
            Fate.APPLIED.value: rows.height,
            Fate.FILTERED.value: batch.height - rows.height,
        }
        return None, Outcome(changes=changes, counts=counts)

    def provisional(self, state: None) -> list[Changes]:
        return []


def _contents(table: Table, here: pl.DataFrame, told: pl.DataFrame) -> list[Changes]:
    """`here` are the events about contents that this table is for, of all that are told. It may
    have been the other table's in between, so what counts is the last event of all.
    """
    last = told.unique("sha256", keep="last").select("sha256", last=OFFSET)
    ended = here.unique("sha256", keep="last").join(last, on="sha256")
    gone = ended.filter((pl.col("references") == 0) | (pl.col(OFFSET) != pl.col("last")))
    kept = here.join(gone, on="sha256", how="anti")
    if "content" in table.values:
        kept = kept.filter(pl.col("content").is_not_null())
    kept = kept.unique("sha256", keep="last", maintain_order=True)
    return [*_written(table, kept), *_deleted(table, gone.sort(OFFSET))]


def _written(table: Table, rows: pl.DataFrame) -> list[Changes]:
    return [Upsert(table, rows.select(*table.columns))] if rows.height else []


def _deleted(table: Table, rows: pl.DataFrame) -> list[Changes]:
    return [Delete(table, rows.select(*table.key))] if rows.height else []
