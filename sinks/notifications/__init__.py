"""Where notifications are stored and how they are read: three read models in Redis.

`TRAIL` is what was decided (steps of each notification, recipients), `DELIVERIES` what became of
the messages, `TEMPLATES` the texts in all versions. A row's `offset` is that of its event.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

STEPS = Table(
    name="steps",
    key={"notification_id": pl.String, "offset": pl.Int64},
    values={
        "user_id": pl.String,
        "step": pl.String,
        "at_ms": pl.Int64,
        "revision": pl.Int64,
        "detail": pl.String,
    },
    bucket=("notification_id",),
    append=True,
)
"""What was decided about a notification, step by step; `revision` is that of the preferences in
force, `detail` a JSON object."""

LISTED = Table(
    name="listed",
    key={"user_id": pl.String, "notification_id": pl.String},
    values={"template": pl.String, "priority": pl.String, "at_ms": pl.Int64},
    bucket=("user_id",),
)
"""A recipient's notifications."""

PREFERENCES = Table(
    name="preferences",
    key={"user_id": pl.String, "revision": pl.Int64},
    values={"wanted": pl.String, "at_ms": pl.Int64},
    bucket=("user_id",),
    append=True,
)
"""Every revision of a recipient's preferences; `wanted` is a JSON object."""

CONTACTS = Table(
    name="contacts",
    key={"user_id": pl.String},
    values={"email": pl.String, "phone": pl.String, "at_ms": pl.Int64},
    bucket=("user_id",),
)

DEVICES = Table(
    name="devices",
    key={"user_id": pl.String, "token": pl.String},
    values={"platform": pl.String, "at_ms": pl.Int64},
    bucket=("user_id",),
)

TRAIL = ReadModel("notifications-trail", (STEPS, LISTED, PREFERENCES, CONTACTS, DEVICES))

REPORTS = Table(
    name="reports",
    key={
        "notification_id": pl.String,
        "delivery_id": pl.String,
        "provider": pl.String,
        "status": pl.String,
    },
    values={
        "channel": pl.String,
        "message_id": pl.String,
        "detail": pl.String,
        "at_ms": pl.Int64,
        "offset": pl.Int64,
    },
    bucket=("notification_id",),
)
"""What became of deliveries; what is reported twice is one row."""

DELIVERIES = ReadModel("notifications-deliveries", (REPORTS,))

VERSIONS = Table(
    name="versions",
    key={"template": pl.String, "version": pl.String},
    values={"body": pl.String, "at_ms": pl.Int64, "offset": pl.Int64},
    bucket=("template",),
)
"""Every version of a template; the one published last is current. `body` is the event as JSON."""

TEMPLATES = ReadModel("notifications-templates", (VERSIONS,))
