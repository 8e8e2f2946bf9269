"""From decisions to lanes: one topic a priority, one row a message. Pure.

A one-time code shares no queue with a campaign from here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import polars as pl

from schemas.notifications.events import (
    DELIVERY_REQUESTED,
    DIGEST_CLOSED,
    EVENTS,
    MARKETING,
    NOTIFICATION_ACCEPTED,
    NOTIFICATION_RESUMED,
    OTP,
    TRANSACTIONAL,
)
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.derivation.rules import Derivation

SOURCES = (NOTIFICATION_ACCEPTED, NOTIFICATION_RESUMED, DIGEST_CLOSED)
_COMMON = tuple(
    name for name in DELIVERY_REQUESTED.columns if name not in ("delivery_id", "channel", "address")
)
LANES = {"otp": OTP, "transactional": TRANSACTIONAL, "marketing": MARKETING}


def messages(priority: str, batch: Batch) -> Mapping[str, pl.DataFrame]:
    """The messages of one priority: those of an event in its order, events by offset."""
    parts = [
        batch.of(record.fullname)
        .filter((pl.col("priority") == priority) & (pl.col("deliveries").list.len() > 0))
        .select(*_COMMON, "deliveries", OFFSET)
        .explode("deliveries")
        .unnest("deliveries")
        for record in SOURCES
    ]
    rows = pl.concat(parts).sort(OFFSET, maintain_order=True)
    return {DELIVERY_REQUESTED.fullname: rows.select(*DELIVERY_REQUESTED.columns, OFFSET)}


DERIVATIONS = tuple(
    Derivation(
        name=f"notifications-{priority}",
        source=EVENTS,
        target=topic,
        derive=partial(messages, priority),
        columns={record.fullname: (*_COMMON, "deliveries") for record in SOURCES},
    )
    for priority, topic in LANES.items()
)
