"""From decisions to deliveries: a row a message and endpoint; and the steps of recoveries. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.webhooks.events import (
    ATTEMPT_RECORDED,
    DELIVERIES,
    DELIVERY_REQUESTED,
    EVENTS,
    MESSAGE_PUBLISHED,
    MESSAGES_RESENT,
    RECOVERY_STEPPED,
)
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.derivation.rules import Derivation

_STEP = (
    "endpoint_id",
    "tenant_id",
    "request_id",
    "revision",
    "since",
    "next_sequence",
    "until_sequence",
)


def fan_out(batch: Batch) -> Mapping[str, pl.DataFrame]:
    """Deliveries of an event in its order, events by offset. What was just published brings its
    body; what comes later is read where messages are stored.
    """
    nothing = pl.lit(None, pl.String).alias("body")
    parts = [
        batch.of(record.fullname)
        .filter(pl.col("deliveries").list.len() > 0)
        .select("tenant_id", body, "deliveries", OFFSET)
        .explode("deliveries")
        .unnest("deliveries")
        for record, body in (
            (MESSAGE_PUBLISHED, pl.col("body")),
            (MESSAGES_RESENT, nothing),
            (ATTEMPT_RECORDED, nothing),
        )
    ]
    rows = pl.concat(parts).sort(OFFSET, maintain_order=True)
    steps = batch.of(MESSAGES_RESENT.fullname).filter(
        pl.col("since").is_not_null() & (pl.col("next_sequence") < pl.col("until_sequence"))
    )
    return {
        DELIVERY_REQUESTED.fullname: rows.select(*DELIVERY_REQUESTED.columns, OFFSET),
        RECOVERY_STEPPED.fullname: steps.select(*_STEP, OFFSET),
    }


FAN_OUT = Derivation(
    name="webhooks-fanout",
    source=EVENTS,
    target=DELIVERIES,
    derive=fan_out,
    columns={
        MESSAGE_PUBLISHED.fullname: ("tenant_id", "body", "deliveries"),
        MESSAGES_RESENT.fullname: ("deliveries", *_STEP),
        ATTEMPT_RECORDED.fullname: ("tenant_id", "deliveries"),
    },
)
