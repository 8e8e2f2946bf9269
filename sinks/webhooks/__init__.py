"""Where webhooks are stored: one read model in Cassandra, all of it a fold of one topic.

Messages and deliveries are stored in blocks of consecutive numbers of their tenant, so a cursor is
a number, a page is a slice of a block or two, and no partition grows for ever.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

BLOCK = 1_000
"""Numbers of a tenant's messages that are stored together."""

ENDPOINTS = Table(
    "endpoints",
    key={"tenant_id": pl.String, "endpoint_id": pl.String},
    values={
        "revision": pl.Int64,
        "deleted": pl.Boolean,
        "url": pl.String,
        "event_types": pl.List(pl.String),
        "ordered": pl.Boolean,
        "rate_per_s": pl.Int32,
        "description": pl.String,
        "secrets": pl.String,
        "disabled": pl.String,
        "created_ms": pl.Int64,
        "changed_ms": pl.Int64,
    },
    bucket=("tenant_id",),
)
"""Endpoints as they stand, deleted ones as well; `secrets` is JSON."""

TENANTS = Table(
    "tenants",
    key={"tenant_id": pl.String},
    values={"sequence": pl.Int64},
    bucket=("tenant_id",),
)
"""The number of each tenant's newest message."""

MESSAGES = Table(
    "messages",
    key={"tenant_id": pl.String, "block": pl.Int64, "sequence": pl.Int64},
    values={
        "message_id": pl.String,
        "event_type": pl.String,
        "order_key": pl.String,
        "body": pl.String,
        "at_ms": pl.Int64,
    },
    bucket=("tenant_id", "block"),
    append=True,
)

NUMBERS = Table(
    "numbers",
    key={"tenant_id": pl.String, "message_id": pl.String},
    values={"sequence": pl.Int64},
    bucket=("tenant_id", "message_id"),
)
"""The number of each message."""

DELIVERIES = Table(
    "deliveries",
    key={
        "tenant_id": pl.String,
        "endpoint_id": pl.String,
        "block": pl.Int64,
        "sequence": pl.Int64,
    },
    values={
        "message_id": pl.String,
        "status": pl.String,
        "attempts": pl.Int32,
        "http_status": pl.Int32,
        "detail": pl.String,
        "at_ms": pl.Int64,
    },
    bucket=("tenant_id", "endpoint_id", "block"),
)
"""What became of each message at each endpoint: sending, queued, retrying, delivered, failed, gone,
skipped."""

ATTEMPTS = Table(
    "attempts",
    key={"tenant_id": pl.String, "message_id": pl.String, "offset": pl.Int64},
    values={
        "endpoint_id": pl.String,
        "delivery_id": pl.String,
        "attempt": pl.Int32,
        "status": pl.String,
        "http_status": pl.Int32,
        "detail": pl.String,
        "duration_ms": pl.Int32,
        "at_ms": pl.Int64,
    },
    bucket=("tenant_id", "message_id"),
    append=True,
)
"""Every try."""

WEBHOOKS = ReadModel("webhooks-log", (ENDPOINTS, TENANTS, MESSAGES, NUMBERS, DELIVERIES, ATTEMPTS))
