"""Events → books, payments and settlement files, without memory: a row comes from one event.

The last event of a batch about a key wins, so any cut into batches ends in the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from schemas.payments.events import (
    ACCOUNT_OPENED,
    PAYMENT_CHANGED,
    SETTLEMENT_RECORDED,
    TRANSFER_RECORDED,
)
from sinks import payments as store
from streams.payments.ledger import PROVIDER
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Table, Upsert

RECORDS: Final = (ACCOUNT_OPENED, TRANSFER_RECORDED, PAYMENT_CHANGED, SETTLEMENT_RECORDED)


class KeepBooks:
    """The fold of `payments-books`; it has no state."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        told = sum(batch.of(record.fullname).height for record in RECORDS)
        opened, postings = batch.of(ACCOUNT_OPENED.fullname), _postings(batch)
        changes = [
            *_accounts(opened),
            *_balances(opened, postings),
            *_entries(postings),
            *_transfers(batch.of(TRANSFER_RECORDED.fullname)),
            *_payments(batch.of(PAYMENT_CHANGED.fullname)),
            *_settlements(batch.of(SETTLEMENT_RECORDED.fullname)),
        ]
        counts = {Fate.APPLIED.value: told, Fate.FILTERED.value: batch.height - told}
        return None, Outcome(changes=changes, counts=counts)

    def provisional(self, state: None) -> list[Changes]:
        return []


def _upserts(table: Table, rows: pl.DataFrame) -> list[Changes]:
    """The rows, the last one of each key; nothing for none."""
    if not rows.height:
        return []
    typed = rows.select(pl.col(name).cast(dtype) for name, dtype in table.columns.items())
    return [Upsert(table, typed.unique(list(table.key), keep="last", maintain_order=True))]


def _accounts(opened: pl.DataFrame) -> list[Changes]:
    return _upserts(store.ACCOUNTS, opened.with_columns(_ms("recorded_at", "opened_ms")))


def _balances(opened: pl.DataFrame, postings: pl.DataFrame) -> list[Changes]:
    """How accounts stand after the batch; those that were opened in it begin at zero."""
    zero = [pl.lit(0, pl.Int64).alias(c) for c in ("balance", "debits_held", "credits_held")]
    columns = ("book", "account", "currency", "balance", "debits_held", "credits_held", "offset")
    fresh = opened.with_columns(pl.col(OFFSET).alias("offset"), *zero).select(columns)
    return _upserts(store.BALANCES, pl.concat([fresh, postings.select(columns)]))


def _postings(batch: Batch) -> pl.DataFrame:
    """All postings of a batch in offset order, with what they are of."""
    parts = [
        batch.of(record.fullname).select(
            "book",
            "number",
            pl.col(OFFSET).alias("offset"),
            _ms("recorded_at", "recorded_ms"),
            _ms(effective, "effective_ms"),
            kind.cast(pl.String).alias("kind"),
            pl.col(of).alias("of"),
            reference.alias("reference"),
            "postings",
        )
        for record, effective, kind, of, reference in (
            (
                *(TRANSFER_RECORDED, "effective_at", pl.col("kind")),
                *("transfer_id", pl.col("reference")),
            ),
            (PAYMENT_CHANGED, "recorded_at", pl.lit("payment"), "payment_id", pl.col("order_id")),
            (SETTLEMENT_RECORDED, "recorded_at", pl.lit("settlement"), "file_id", pl.lit("")),
        )
    ]
    together = pl.concat(parts).filter(pl.col("postings").list.len() > 0)
    return together.explode("postings").unnest("postings").sort("offset", maintain_order=True)


def _entries(postings: pl.DataFrame) -> list[Changes]:
    hour = pl.col("recorded_ms") // store.HOUR_MS * store.HOUR_MS
    entries = postings.filter(pl.col("amount") != 0).with_columns(hour.alias("hour_ms"))
    return [
        *_upserts(store.HOURS, entries),
        *_upserts(store.ENTRIES, entries),
        *_upserts(store.BACKDATED, entries.filter(pl.col("effective_ms") < pl.col("hour_ms"))),
    ]


def _transfers(rows: pl.DataFrame) -> list[Changes]:
    leg = pl.col("legs").list
    kept = rows.with_columns(
        pl.col("kind").cast(pl.String),
        pl.col("change").cast(pl.String).alias("state"),
        _ms("effective_at", "effective_ms"),
        _ms("recorded_at", "recorded_ms"),
        _ms("expires_at", "expires_ms"),
        leg.eval(pl.element().struct.field("debit_account")).alias("debit_accounts"),
        leg.eval(pl.element().struct.field("credit_account")).alias("credit_accounts"),
        leg.eval(pl.element().struct.field("currency")).alias("currencies"),
        leg.eval(pl.element().struct.field("amount")).alias("amounts"),
    )
    return _upserts(store.TRANSFERS, kept)


def _payments(rows: pl.DataFrame) -> list[Changes]:
    at = _ms("recorded_at", "changed_ms")
    facts = rows.with_columns(pl.col("created_at").alias("created_ms"))
    stand = ("number", "state", "authorized", "captured", "refunded")
    operations = (
        rows.filter(pl.col("operations").list.len() > 0)
        .select("book", "payment_id", "source", "currency", at, *stand, "operations")
        .explode("operations")
        .unnest("operations")
        .rename({"requested_at": "requested_ms"})
    )
    done = operations.filter(
        pl.col("source").str.starts_with(f"{PROVIDER}:")
        & pl.col("kind").is_in(["capture", "refund"])
        & (pl.col("status") == "succeeded")
        & (pl.col("ask") == "")
    ).with_columns(
        pl.col("changed_ms").alias("done_ms"),
        (pl.col("changed_ms") // store.DAY_MS * store.DAY_MS).alias("day_ms"),
    )
    return [
        *_upserts(store.PAYMENTS, facts),
        *_upserts(store.OPERATIONS, operations),
        *_upserts(store.DONE, done),
    ]


def _settlements(rows: pl.DataFrame) -> list[Changes]:
    period = (_ms("period_from", "period_from_ms"), _ms("period_to", "period_to_ms"))
    files = rows.with_columns(
        *period, _ms("recorded_at", "recorded_ms"), pl.col("lines").list.len().cast(pl.Int64)
    )
    lines = rows.select("book", "file_id", *period, "lines").explode("lines").unnest("lines")
    return [
        *_upserts(store.FILES, files),
        *_upserts(store.LINES, lines),
        *_upserts(store.SETTLED, lines),
    ]


def _ms(instant: str, name: str) -> pl.Expr:
    return pl.col(instant).dt.epoch("ms").alias(name)
