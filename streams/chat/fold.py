"""Events → conversations as they are read. Columns, without state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from schemas.chat.events import CONVERSATION_CHANGED, RECEIPT_MOVED
from sinks import chat as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Delete, Table, Upsert


class KeepChat:
    """The fold of `chat-history`: every row follows from one event."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def provisional(self, state: None) -> list[Changes]:
        return []

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        entries, receipts = (
            batch.of(CONVERSATION_CHANGED.fullname),
            batch.of(RECEIPT_MOVED.fullname),
        )
        changes: list[Changes] = []
        if entries.height:
            changes += _entries(entries)
        if receipts.height:
            told = receipts.with_columns(_ms("recorded_at").alias("recorded_ms"))
            changes.append(_last(store.MARKS, told))
        applied = entries.height + receipts.height
        counts = {Fate.APPLIED.value: applied, Fate.FILTERED.value: batch.height - applied}
        return None, Outcome(changes=changes, counts=counts)


def _entries(rows: pl.DataFrame) -> Iterator[Changes]:
    rows = rows.with_columns(
        _ms("recorded_at").alias("recorded_ms"), (pl.col("seq") // store.PAGE).alias("page")
    )
    yield Upsert(store.ENTRIES, rows.select(*store.ENTRIES.columns))
    yield _last(store.HEADS, rows.with_columns(pl.col("seq").alias("last_seq")))
    about = rows.filter(pl.col("members_seq") == pl.col("seq"))
    if about.height:
        yield _last(store.CONVERSATIONS, about)
        yield from _memberships(about)
    revised = rows.filter(pl.col("of") > 0)
    if revised.height:
        yield _last(
            store.REVISIONS,
            revised.with_columns(
                (pl.col("of") // store.PAGE).alias("page"),
                (pl.col("change") == "deleted").alias("deleted"),
            ),
        )


def _memberships(rows: pl.DataFrame) -> Iterator[Changes]:
    """The last word about everybody who came or went."""
    moves = pl.concat(
        [
            rows.select("conversation_id", OFFSET, pl.col("seq").alias("since_seq"), user_id=column)
            .with_columns(pl.lit(comes).alias("comes"))
            .explode("user_id")
            .drop_nulls("user_id")
            for column, comes in (("added", True), ("removed", False))
        ]
    ).sort(OFFSET, maintain_order=True)
    last = moves.unique(list(store.MEMBERSHIPS.key), keep="last", maintain_order=True)
    come, gone = last.filter("comes"), last.filter(~pl.col("comes"))
    if come.height:
        yield Upsert(store.MEMBERSHIPS, come.select(*store.MEMBERSHIPS.columns))
    if gone.height:
        yield Delete(store.MEMBERSHIPS, gone.select(*store.MEMBERSHIPS.key))


def _last(table: Table, rows: pl.DataFrame) -> Upsert:
    """The last row of every key."""
    kept = rows.unique(list(table.key), keep="last", maintain_order=True)
    return Upsert(table, kept.select(*table.columns))


def _ms(column: str) -> pl.Expr:
    return pl.col(column).dt.epoch("ms")
