"""What is shown of webhooks: the fold of its read model. Columns, without state."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.webhooks.events import (
    ATTEMPT_RECORDED,
    ENDPOINT_DELETED,
    ENDPOINT_SAVED,
    MESSAGE_PUBLISHED,
    MESSAGES_RESENT,
)
from sinks import webhooks as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Table, Upsert
from streams.runtime.topic import RecordType

AT = pl.col("event_time").dt.epoch("ms").alias("at_ms")
BLOCK = (pl.col("sequence") // store.BLOCK).alias("block")
SHOWN = (ENDPOINT_SAVED, ENDPOINT_DELETED, MESSAGE_PUBLISHED, MESSAGES_RESENT, ATTEMPT_RECORDED)


class Trail:
    """`Fold` of `webhooks-log`; every row stands for itself."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def provisional(self, state: None) -> list[Changes]:
        return []

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        published = batch.of(MESSAGE_PUBLISHED.fullname).with_columns(BLOCK, AT)
        attempts = batch.of(ATTEMPT_RECORDED.fullname).with_columns(
            AT, pl.col("status").cast(pl.String), pl.col(OFFSET).alias("offset")
        )
        changes = [
            change
            for table, rows in (
                (store.ENDPOINTS, pl.concat([_saved(batch), _deleted(batch)])),
                (store.TENANTS, published),
                (store.MESSAGES, published),
                (store.NUMBERS, published),
                (store.DELIVERIES, _deliveries(batch, attempts)),
                (store.ATTEMPTS, attempts),
            )
            for change in _newest(table, rows)
        ]
        shown = sum(batch.of(record.fullname).height for record in SHOWN)
        counts: dict[str, int] = {Fate.APPLIED: shown, Fate.FILTERED: batch.height - shown}
        return None, Outcome(changes, counts)


def _newest(table: Table, rows: pl.DataFrame) -> list[Changes]:
    """The last row of each key."""
    last = rows.sort(OFFSET, maintain_order=True).unique(
        list(table.key), keep="last", maintain_order=True
    )
    wanted = [pl.col(name).cast(dtype) for name, dtype in table.columns.items()]
    return [Upsert(table, last.select(wanted))] if last.height else []


_ENDPOINT = (*store.ENDPOINTS.columns, OFFSET)


def _saved(batch: Batch) -> pl.DataFrame:
    return (
        batch.of(ENDPOINT_SAVED.fullname)
        .with_columns(
            pl.lit(value=False).alias("deleted"),
            _json("secrets"),
            pl.col("created_at").dt.epoch("ms").alias("created_ms"),
            pl.col("event_time").dt.epoch("ms").alias("changed_ms"),
        )
        .select(_ENDPOINT)
    )


def _json(column: str) -> pl.Expr:
    """A list of records as JSON: `[{…}]`."""
    parts = pl.col(column).list.eval(pl.element().struct.json_encode()).list.join(",")
    return pl.concat_str(pl.lit("["), parts, pl.lit("]")).alias(column)


def _deleted(batch: Batch) -> pl.DataFrame:
    """What is left of an endpoint: that it was there, and nothing to call it with."""
    return (
        batch.of(ENDPOINT_DELETED.fullname)
        .with_columns(
            pl.lit(value=True).alias("deleted"),
            *(pl.lit("").alias(name) for name in ("url", "description")),
            pl.lit([], pl.List(pl.String)).alias("event_types"),
            pl.lit(value=False).alias("ordered"),
            pl.lit(0, pl.Int32).alias("rate_per_s"),
            pl.lit("[]").alias("secrets"),
            pl.lit("deleted").alias("disabled"),
            pl.lit(0, pl.Int64).alias("created_ms"),
            pl.col("event_time").dt.epoch("ms").alias("changed_ms"),
        )
        .select(_ENDPOINT)
    )


def _deliveries(batch: Batch, attempts: pl.DataFrame) -> pl.DataFrame:
    """Where each delivery stands: planned, released, or tried."""
    tried = attempts.select(
        "tenant_id",
        "endpoint_id",
        "sequence",
        "message_id",
        pl.when((pl.col("status") == "failed") & ~pl.col("final"))
        .then(pl.lit("retrying"))
        .otherwise("status")
        .alias("status"),
        pl.col("attempt").alias("attempts"),
        "http_status",
        "detail",
        AT,
        OFFSET,
    )
    planned = (
        (MESSAGE_PUBLISHED, "deliveries", "sending"),
        (MESSAGE_PUBLISHED, "queued", "queued"),
        (MESSAGES_RESENT, "deliveries", "sending"),
        (MESSAGES_RESENT, "queued", "queued"),
        (ATTEMPT_RECORDED, "deliveries", "sending"),
    )
    rows = [_planned(batch, *one) for one in planned]
    return pl.concat([tried, *rows]).with_columns(BLOCK)


def _planned(batch: Batch, record: RecordType, column: str, status: str) -> pl.DataFrame:
    return (
        batch.of(record.fullname)
        .filter(pl.col(column).list.len() > 0)
        .select("tenant_id", pl.col(column).alias("planned"), AT, OFFSET)
        .explode("planned")
        .unnest("planned")
        .select(
            "tenant_id",
            "endpoint_id",
            "sequence",
            "message_id",
            pl.lit(status).alias("status"),
            pl.lit(0, pl.Int32).alias("attempts"),
            pl.lit(0, pl.Int32).alias("http_status"),
            pl.lit("").alias("detail"),
            "at_ms",
            OFFSET,
        )
    )
