"""Reads of notifications: timelines, recipients, templates."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from schemas.notifications.events import TemplatePublished
from sinks.notifications import CONTACTS, DEVICES, LISTED, PREFERENCES, REPORTS, STEPS, VERSIONS

if TYPE_CHECKING:
    from sinks.readers.redis import RedisReader

DONE = ("sent", "delivered")


@dataclass(frozen=True)
class Step:
    """One decision about a notification, or one report about a delivery."""

    at_ms: int
    step: str
    detail: dict[str, Any]


@dataclass(frozen=True)
class Delivery:
    """A message to one address and the last that is known of it: `sending` until there is news."""

    id: str
    channel: str
    status: str
    provider: str
    detail: str


@dataclass(frozen=True)
class Notification:
    """A notification: its timeline, its deliveries, and the preferences in force when it was
    decided about last (None: the recipient never chose any).
    """

    id: str
    user_id: str
    status: str
    template: str
    priority: str
    preferences_revision: int
    preferences: dict[str, Any] | None
    deliveries: list[Delivery]
    timeline: list[Step]


@dataclass(frozen=True)
class Listed:
    """One line of a recipient's list."""

    id: str
    template: str
    priority: str
    at_ms: int


@dataclass(frozen=True)
class Recipient:
    """Addresses and preferences of a recipient, as they are now."""

    user_id: str
    email: str
    phone: str
    devices: list[dict[str, str]]
    preferences_revision: int
    preferences: dict[str, Any] | None


class NotificationsReader:
    """Timelines and recipients, from the trail and the deliveries."""

    def __init__(self, trail: RedisReader, deliveries: RedisReader) -> None:
        self._trail = trail
        self._deliveries = deliveries

    async def close(self) -> None:
        """Release the connections."""
        await asyncio.gather(self._trail.close(), self._deliveries.close())

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        found = await asyncio.gather(self._trail.positions(), self._deliveries.positions())
        return {at: p.next_offset for part in found for at, p in part.items()}

    async def notification(self, id_: str) -> Notification | None:
        """One notification; None where there is none."""
        wanted = {"notification_id": id_}
        steps, reports = await asyncio.gather(
            self._trail.bucket(STEPS.name, wanted), self._deliveries.bucket(REPORTS.name, wanted)
        )
        if not steps.height:
            return None
        rows = steps.sort("offset").to_dicts()
        last = [row for row in rows if row["step"] != "repeated"][-1]
        revision: int = last["revision"]
        preferences = await self._preferences(last["user_id"], revision) if revision else None
        return told(id_, rows, reports.sort("offset").to_dicts(), preferences)

    async def listed(self, user_id: str) -> list[Listed]:
        """A recipient's notifications, newest first."""
        rows = await self._trail.bucket(LISTED.name, {"user_id": user_id})
        newest = rows.sort("at_ms", "notification_id", descending=True)
        columns = ("notification_id", "template", "priority", "at_ms")
        return [Listed(*row) for row in newest.select(columns).iter_rows()]

    async def recipient(self, user_id: str) -> Recipient:
        """A recipient, also one that nothing is known of."""
        wanted = {"user_id": user_id}
        contact, devices, chosen = await asyncio.gather(
            self._trail.bucket(CONTACTS.name, wanted),
            self._trail.bucket(DEVICES.name, wanted),
            self._trail.bucket(PREFERENCES.name, wanted),
        )
        newest = chosen.sort("revision").tail(1)
        return Recipient(
            user_id,
            contact["email"][0] if contact.height else "",
            contact["phone"][0] if contact.height else "",
            devices.sort("at_ms", "token").select("token", "platform").to_dicts(),
            newest["revision"][0] if newest.height else 0,
            json.loads(newest["wanted"][0]) if newest.height else None,
        )

    async def _preferences(self, user_id: str, revision: int) -> dict[str, Any] | None:
        rows = await self._trail.bucket(PREFERENCES.name, {"user_id": user_id})
        found = rows.filter(pl.col("revision") == revision)
        return json.loads(found["wanted"][0]) if found.height else None


def told(
    id_: str,
    steps: list[dict[str, Any]],
    reports: list[dict[str, Any]],
    preferences: dict[str, Any] | None,
) -> Notification:
    """A notification from its rows, each list by offset."""
    decided = [row for row in steps if row["step"] != "repeated"]
    first, last = (json.loads(decided[n]["detail"]) for n in (0, -1))
    deliveries = [_delivery(one, reports) for one in last.get("deliveries") or ()]
    timeline = [Step(row["at_ms"], row["step"], json.loads(row["detail"])) for row in steps]
    timeline += [
        Step(
            row["at_ms"],
            row["status"],
            {key: row[key] for key in ("delivery_id", "provider", "message_id", "detail")},
        )
        for row in reports
    ]
    return Notification(
        id=id_,
        user_id=decided[-1]["user_id"],
        status=_status(decided[-1]["step"], deliveries),
        template=first.get("template", ""),
        priority=first.get("priority", ""),
        preferences_revision=decided[-1]["revision"],
        preferences=preferences,
        deliveries=deliveries,
        timeline=sorted(timeline, key=lambda step: step.at_ms),
    )


def _rank(report: dict[str, Any]) -> int:
    """Whose word counts: a delivery that was confirmed, what the provider says later, that it took
    the message, that it did not. Of equal ones the later counts.
    """
    match report["status"], bool(report["provider"]):
        case "delivered", _:
            return 3
        case "failed" | "invalid_address", True:
            return 2
        case "sent", _:
            return 1
    return 0


def _delivery(decided: dict[str, Any], reports: list[dict[str, Any]]) -> Delivery:
    own = [row for row in reports if row["delivery_id"] == decided["delivery_id"]]
    if not own:
        return Delivery(decided["delivery_id"], decided["channel"], "sending", "", "")
    # max() keeps the first of equal ones, so the newest come first.
    best = max(reversed(own), key=_rank)
    return Delivery(
        best["delivery_id"], best["channel"], best["status"], best["provider"], best["detail"]
    )


def _status(step: str, deliveries: list[Delivery]) -> str:
    """Of the whole: as far as all its messages are, by those that went out if any did."""
    if step != "released":
        return step
    found = {one.status for one in deliveries}
    for status in ("sending", *DONE):
        if status in found:
            return status
    return "failed"


class TemplatesReader:
    """Texts, in the current version or any."""

    def __init__(self, templates: RedisReader) -> None:
        self._templates = templates

    async def close(self) -> None:
        """Release the connections."""
        await self._templates.close()

    async def applied(self) -> dict[tuple[str, int], int]:
        """The first offset not folded yet, by topic and partition."""
        return {at: p.next_offset for at, p in (await self._templates.positions()).items()}

    async def template(self, name: str, version: str = "") -> TemplatePublished | None:
        """A version of a template, the current one by default; None where there is none."""
        rows = await self._templates.bucket(VERSIONS.name, {"template": name})
        if version:
            rows = rows.filter(pl.col("version") == version)
        if not rows.height:
            return None
        return TemplatePublished(**json.loads(rows.sort("offset")["body"][-1]))
