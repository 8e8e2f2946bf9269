"""What is shown of notifications: the folds of the three read models. Columns, without state."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from schemas.notifications.events import (
    CONTACT_SET,
    DELIVERY_REPORTED,
    DEVICE_REGISTERED,
    DEVICE_REMOVED,
    DIGEST_CLOSED,
    NOTIFICATION_ACCEPTED,
    NOTIFICATION_CANCELLED,
    NOTIFICATION_REPEATED,
    NOTIFICATION_RESUMED,
    PREFERENCES_SET,
    TEMPLATE_PUBLISHED,
)
from sinks import notifications as store
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.sink import Changes, Delete, Table, Upsert
from streams.runtime.topic import RecordType

AT = pl.col("event_time").dt.epoch("ms").alias("at_ms")
DECIDED = ("template", "template_version", "priority", "channels", "deliveries", "suppressed")


class _Stateless:
    """A fold whose every row stands for itself."""

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def provisional(self, state: None) -> list[Changes]:
        return []


class Trail(_Stateless):
    """Decisions → steps of notifications, and recipients as they are now."""

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        steps = pl.concat([_decided(batch), _others(batch)])
        listed = _listed(batch)
        preferences = batch.of(PREFERENCES_SET.fullname).select(
            "user_id",
            "revision",
            pl.struct(
                "opt_outs", "quiet_scope", "quiet_start", "quiet_end", "timezone", "locale"
            ).struct.json_encode().alias("wanted"),
            AT,
        )  # fmt: skip
        contacts = (
            batch.of(CONTACT_SET.fullname)
            .sort(OFFSET)
            .unique("user_id", keep="last")
            .select("user_id", "email", "phone", AT)
        )
        changes: list[Changes] = [
            Upsert(table, rows.select(*table.columns))
            for table, rows in (
                (store.STEPS, steps),
                (store.LISTED, listed),
                (store.PREFERENCES, preferences),
                (store.CONTACTS, contacts),
            )
            if rows.height
        ]
        rejected = batch.height - sum(batch.of(record.fullname).height for record in _FOLDED)
        counts: dict[str, int] = {
            Fate.APPLIED: batch.height - rejected,
            Fate.FILTERED: rejected,
        }
        return None, Outcome(changes=[*changes, *_devices(batch)], counts=counts)


_FOLDED = (
    *(NOTIFICATION_ACCEPTED, NOTIFICATION_RESUMED, DIGEST_CLOSED),
    *(NOTIFICATION_CANCELLED, NOTIFICATION_REPEATED, PREFERENCES_SET, CONTACT_SET),
    *(DEVICE_REGISTERED, DEVICE_REMOVED),
)
"""What changes the trail. The rest are commands that changed nothing."""


def _decided(batch: Batch) -> pl.DataFrame:
    """Steps of acceptances, resumptions and digests."""
    due = pl.col("due_at").dt.epoch("ms")
    step, revision = pl.col("disposition"), pl.col("preferences_revision")
    return pl.concat(
        _steps(batch, record, step, revision, *DECIDED, due, *more)
        for record, more in (
            (NOTIFICATION_ACCEPTED, ("digest_id",)),
            (NOTIFICATION_RESUMED, ()),
            (DIGEST_CLOSED, ("digest_key", "items")),
        )
    )


def _others(batch: Batch) -> pl.DataFrame:
    none = pl.lit(0, pl.Int64)
    return pl.concat(
        [
            _steps(batch, NOTIFICATION_CANCELLED, pl.lit("cancelled"), none, "user_id"),
            _steps(batch, NOTIFICATION_REPEATED, pl.lit("repeated"), none, "repeated_id"),
        ]
    )


def _steps(
    batch: Batch, record: RecordType, step: pl.Expr, revision: pl.Expr, *told: str | pl.Expr
) -> pl.DataFrame:
    return batch.of(record.fullname).select(
        "notification_id",
        pl.col(OFFSET).alias("offset"),
        "user_id",
        step.cast(pl.String).alias("step"),
        AT,
        revision.alias("revision"),
        pl.struct(*told).struct.json_encode().alias("detail"),
    )


def _listed(batch: Batch) -> pl.DataFrame:
    """What a recipient's list shows. A digest is listed when it closes."""
    columns = ("user_id", "notification_id", "template", "priority", AT)
    return pl.concat(
        batch.of(record.fullname).select(*columns)
        for record in (NOTIFICATION_ACCEPTED, DIGEST_CLOSED)
    )


def _devices(batch: Batch) -> list[Changes]:
    """The last word of the batch about each device."""
    known = batch.of(DEVICE_REGISTERED.fullname).select(
        "user_id", "token", "platform", AT, OFFSET, pl.lit(value=True).alias("there")
    )
    gone = batch.of(DEVICE_REMOVED.fullname).select(
        "user_id", "token", pl.lit("").alias("platform"), AT, OFFSET,
        pl.lit(value=False).alias("there"),
    )  # fmt: skip
    last = pl.concat([known, gone]).sort(OFFSET).unique(("user_id", "token"), keep="last")
    here, away = last.filter("there"), last.filter(~pl.col("there"))
    changes: list[Changes] = []
    if here.height:
        changes.append(Upsert(store.DEVICES, here.select(*store.DEVICES.columns)))
    if away.height:
        changes.append(Delete(store.DEVICES, away.select(*store.DEVICES.key)))
    return changes


class Reports(_Stateless):
    """Reports → what became of each delivery; what is told twice is one row."""

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows = batch.of(DELIVERY_REPORTED.fullname).with_columns(
            pl.col("reported_at").dt.epoch("ms").alias("at_ms"),
            pl.col("provider_message_id").alias("message_id"),
            pl.col(OFFSET).alias("offset"),
        )
        return None, _upserted(store.REPORTS, rows, batch)


class Versions(_Stateless):
    """Published templates → all their versions."""

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        frame = batch.of(TEMPLATE_PUBLISHED.fullname)
        body = pl.struct(
            pl.col(name).dt.epoch("ms") if name == "published_at" else pl.col(name)
            for name in TEMPLATE_PUBLISHED.columns
        )
        rows = frame.with_columns(
            body.struct.json_encode().alias("body"),
            pl.col("published_at").dt.epoch("ms").alias("at_ms"),
            pl.col(OFFSET).alias("offset"),
        )
        return None, _upserted(store.VERSIONS, rows, batch)


def _upserted(table: Table, rows: pl.DataFrame, batch: Batch) -> Outcome:
    """The newest row of each key."""
    newest = rows.sort(OFFSET).unique(list(table.key), keep="last").select(*table.columns)
    changes = [Upsert(table, newest)] if newest.height else []
    return Outcome(changes=changes, counts={Fate.APPLIED: batch.height})
