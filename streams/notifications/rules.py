"""The rules of notifications: what is sent to whom, when, and what is not. Pure.

A recipient's partition has one writer, so preferences, addresses, idempotency keys, schedules and
digests are decided in the order of the log, and an opt-out holds from the next decision on. What
waits is decided again when its time comes, by the preferences in force then; every decision
records their revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from schemas.notifications.events import (
    CancelNotification,
    ContactSet,
    Delivery,
    DeviceRegistered,
    DeviceRemoved,
    DigestClosed,
    Disposition,
    NotificationAccepted,
    NotificationCancelled,
    NotificationRepeated,
    NotificationResumed,
    PreferencesSet,
    RegisterDevice,
    RemoveDevice,
    SendNotification,
    SetContact,
    SetPreferences,
    Suppression,
)
from streams.notifications import digests
from streams.notifications.folding import evolve
from streams.notifications.preferences import addresses, held_until, known_zone, opted_out
from streams.notifications.state import (
    DIGESTS,
    KEYS,
    PENDING,
    PROFILES,
    TABLES,
    Digest,
    Pending,
    Profile,
    Used,
)
from streams.runtime.decider.rules import Command, Event, Rejected, Reply, State, Timer

VERSION = 1


class Verdict(NamedTuple):
    """What comes of a notification now: the fields that all three events with one share."""

    disposition: Disposition
    due_at: int | None
    deliveries: list[Delivery]
    suppressed: list[Suppression]


class NotificationRules:
    """`Rules` of the decider `notifications`."""

    version = VERSION
    tables: Mapping[str, Any] = TABLES

    def decide(self, state: State, command: Command) -> Any:
        """The event of a command."""
        match command.row:
            case SendNotification() as row:
                return _send(state, row, command.time_ms)
            case CancelNotification() as row:
                return _cancel(state, row, command.time_ms)
            case SetPreferences() as row:
                return _set_preferences(state, row, command.time_ms)
            case SetContact() as row:
                return ContactSet(row.user_id, row.email, row.phone, command.time_ms)
            case RegisterDevice() as row:
                return DeviceRegistered(row.user_id, row.token, row.platform, command.time_ms)
            case RemoveDevice() as row:
                known = row.token in _profile(state, row.user_id).devices
                return DeviceRemoved(row.user_id, row.token, row.reason, known, command.time_ms)
        raise Rejected("unknown_command", command.record, status=422)

    def expire(self, state: State, timer: Timer) -> Any:
        """The event of a due timer: a notification goes on, or a digest closes."""
        kind, _, id_ = timer.name.partition(":")
        if kind == "send":
            return _resume(state, id_, state[PENDING][id_], timer.time_ms)
        return _close(state, id_, state[DIGESTS][id_], timer.time_ms)

    def evolve(self, state: State, event: Event) -> None:
        """Fold one event."""
        evolve(state, event)

    def reply(self, event: Event) -> Reply:
        """What the sender is told."""
        match event.row:
            case NotificationAccepted() as row:
                told = {"id": row.notification_id, "status": row.disposition}
                if row.digest_id:
                    told["digest"] = row.digest_id
                return Reply(202, told | ({"due_at": row.due_at} if row.due_at else {}))
            case NotificationRepeated() as row:
                return Reply(200, {"id": row.notification_id, "status": "repeated"})
            case NotificationCancelled() as row:
                return Reply(200, {"id": row.notification_id, "status": "cancelled"})
            case PreferencesSet() as row:
                return Reply(200, {"user_id": row.user_id, "revision": row.revision})
            case DeviceRemoved() as row if not row.known:
                return Reply(404, {"code": "unknown_device", "detail": "there is no such device"})
        return Reply(200, {"user_id": event.row.user_id})


def fingerprint(row: SendNotification) -> str:
    """Digest of what is asked, without ids and times: the same request twice has the same one."""
    asked = (row.template, row.priority, *sorted(row.channels), row.params, row.digest_key)
    return blake2b("\x1f".join(asked).encode(), digest_size=12).hexdigest()


def _profile(state: State, user_id: str) -> Profile:
    found: Profile | None = state[PROFILES].get(user_id)
    return found or Profile()


def _send(state: State, row: SendNotification, time_ms: int) -> Any:
    asked = fingerprint(row)
    if row.idempotency_key:
        used: Used | None = state[KEYS].get((row.user_id, row.idempotency_key))
        if used is not None:
            return _repeat(row, used, asked, time_ms)
    if row.notification_id in state[PENDING]:
        raise Rejected("id_in_use", f"{row.notification_id} waits to be sent")
    profile = _profile(state, row.user_id)
    digest_id, verdict = "", None
    if row.digest_key and row.digest_window_ms > 0:
        owner = (row.user_id, row.digest_key, row.digest_window_ms)
        digest_id, start = digests.window_of(state, owner, row.happened_at, time_ms)
        verdict = Verdict("digested", digests.due(start, row.digest_window_ms), [], [])
    elif row.send_at is not None and row.send_at > time_ms:
        verdict = Verdict("scheduled", row.send_at, [], [])
    if verdict is None:
        verdict = _verdict(profile, row.notification_id, _pending(row), time_ms)
    return NotificationAccepted(
        notification_id=row.notification_id,
        user_id=row.user_id,
        template=row.template,
        template_version=row.template_version,
        priority=row.priority,
        channels=row.channels,
        params=row.params,
        locale=profile.preferences.locale,
        idempotency_key=row.idempotency_key,
        fingerprint=asked,
        happened_at=row.happened_at,
        expires_at=row.expires_at,
        digest_key=row.digest_key,
        digest_window_ms=row.digest_window_ms,
        digest_id=digest_id,
        preferences_revision=profile.preferences.revision,
        event_time=time_ms,
        **verdict._asdict(),
    )


def _repeat(row: SendNotification, used: Used, asked: str, time_ms: int) -> NotificationRepeated:
    if used.fingerprint != asked:
        raise Rejected(
            "key_reused", f"the key was used for {used.notification_id}, which differs", status=422
        )
    return NotificationRepeated(
        used.notification_id, row.user_id, row.notification_id, row.idempotency_key, time_ms
    )


def _cancel(state: State, row: CancelNotification, time_ms: int) -> NotificationCancelled:
    found: Pending | None = state[PENDING].get(row.notification_id)
    if found is None or found.user_id != row.user_id:
        raise Rejected("not_pending", "it was sent, cancelled, gathered or never accepted")
    return NotificationCancelled(row.notification_id, row.user_id, time_ms)


def _set_preferences(state: State, row: SetPreferences, time_ms: int) -> PreferencesSet:
    if not known_zone(row.timezone):
        raise Rejected("unknown_timezone", f"no time zone {row.timezone}", status=422)
    for minute in (row.quiet_start, row.quiet_end):
        if not 0 <= minute < 24 * 60:
            raise Rejected("bad_quiet_hours", "minutes after midnight, 0 to 1439", status=422)
    return PreferencesSet(
        user_id=row.user_id,
        revision=_profile(state, row.user_id).preferences.revision + 1,
        opt_outs=row.opt_outs,
        quiet_scope=row.quiet_scope,
        quiet_start=row.quiet_start,
        quiet_end=row.quiet_end,
        timezone=row.timezone,
        locale=row.locale,
        event_time=time_ms,
    )


def _resume(state: State, id_: str, waiting: Pending, time_ms: int) -> NotificationResumed:
    profile = _profile(state, waiting.user_id)
    return NotificationResumed(
        notification_id=id_,
        **_subject(waiting),
        locale=profile.preferences.locale,
        preferences_revision=profile.preferences.revision,
        event_time=time_ms,
        **_verdict(profile, id_, waiting, time_ms)._asdict(),
    )


def _close(state: State, id_: str, digest: Digest, time_ms: int) -> DigestClosed:
    profile = _profile(state, digest.newest.user_id)
    subject = _subject(digest.newest) | {"params": digests.content(digest)}
    return DigestClosed(
        notification_id=id_,
        **subject,
        digest_key=digest.digest_key,
        window_start=digest.window_start,
        digest_window_ms=digest.window_ms,
        items=[item.notification_id for item in digest.items],
        locale=profile.preferences.locale,
        preferences_revision=profile.preferences.revision,
        event_time=time_ms,
        **_verdict(profile, id_, digest.newest, time_ms)._asdict(),
    )


def _pending(row: SendNotification) -> Pending:
    return Pending(
        row.user_id,
        row.template,
        row.template_version,
        row.priority,
        tuple(row.channels),
        row.params,
        row.expires_at,
    )


def _subject(waiting: Pending) -> dict[str, Any]:
    return {
        "user_id": waiting.user_id,
        "template": waiting.template,
        "template_version": waiting.template_version,
        "priority": waiting.priority,
        "channels": list(waiting.channels),
        "params": waiting.params,
        "expires_at": waiting.expires_at,
    }


def _verdict(profile: Profile, id_: str, waiting: Pending, time_ms: int) -> Verdict:
    """Held, suppressed, or released to every address of every wanted channel."""
    preferences, deliveries, suppressed = profile.preferences, [], []
    for channel in dict.fromkeys(waiting.channels):
        found = addresses(profile, channel)
        if opted_out(preferences, channel, waiting.priority, waiting.template):
            suppressed.append(Suppression(channel=channel, reason="opted_out"))
        elif not found:
            suppressed.append(Suppression(channel=channel, reason="no_address"))
        else:
            deliveries += [_delivery(id_, channel, address) for address in found]
    if not deliveries:
        return Verdict("suppressed", None, [], suppressed)
    until = held_until(preferences, waiting.priority, id_, time_ms)
    if until is not None:
        return Verdict("held", until, [], [])
    return Verdict("released", None, deliveries, suppressed)


def _delivery(id_: str, channel: str, address: str) -> Delivery:
    """A device is named by a digest of its token, which belongs into no id that others see."""
    name = channel
    if channel == "push":
        name += "-" + blake2b(address.encode(), digest_size=6).hexdigest()
    return Delivery(delivery_id=f"{id_}/{name}", channel=channel, address=address)
