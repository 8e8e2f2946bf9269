"""How events change what the notification decider remembers. Pure; fails on no event of its own."""

from __future__ import annotations

import msgspec

from schemas.notifications.events import (
    ContactSet,
    DeviceRegistered,
    DeviceRemoved,
    DigestClosed,
    NotificationAccepted,
    NotificationCancelled,
    NotificationResumed,
    PreferencesSet,
)
from streams.notifications import digests
from streams.notifications.state import (
    CLOSED,
    DIGESTS,
    KEY_ORDER,
    KEY_SPAN,
    KEYS,
    PENDING,
    PROFILES,
    Digest,
    Item,
    Pending,
    Preferences,
    Profile,
    Used,
)
from streams.runtime.decider.rules import Event, State

Decided = NotificationAccepted | NotificationResumed | DigestClosed

KEY_MS = 400 * 24 * 3_600_000
"""An idempotency key is remembered for so long, by the log's time."""
DEVICES_MAX = 20
"""A recipient has no more devices: the one registered longest ago goes."""


def evolve(state: State, event: Event) -> None:
    """Fold one event; those that change nothing (a repeat, a rejection) are ignored."""
    match event.row:
        case NotificationAccepted() as row:
            _accepted(state, row)
        case NotificationResumed() as row:
            _set_aside(state, row)
        case DigestClosed() as row:
            _closed(state, row)
        case NotificationCancelled() as row:
            del state[PENDING][row.notification_id]
            state.cancel(f"send:{row.notification_id}")
        case PreferencesSet() as row:
            _change(state, row.user_id, preferences=_preferences(row))
        case ContactSet() as row:
            _change(state, row.user_id, email=row.email, phone=row.phone)
        case DeviceRegistered() as row:
            others = _devices_without(state, row.user_id, row.token)
            _change(state, row.user_id, devices=(*others, row.token)[-DEVICES_MAX:])
        case DeviceRemoved(known=True) as row:
            others = _devices_without(state, row.user_id, row.token)
            _change(state, row.user_id, devices=others)


def _accepted(state: State, row: NotificationAccepted) -> None:
    if row.idempotency_key:
        _remember(state, row)
    if row.disposition != "digested":
        _set_aside(state, row)
        return
    assert row.due_at is not None
    one = Digest(
        _pending(row),
        row.digest_key,
        row.due_at - digests.GRACE_MS - row.digest_window_ms,
        row.digest_window_ms,
        (Item(row.notification_id, row.params),),
    )
    state[DIGESTS][row.digest_id] = digests.joined(state[DIGESTS].get(row.digest_id), one)
    state.schedule(f"digest:{row.digest_id}", row.due_at)


def _set_aside(
    state: State, row: NotificationAccepted | NotificationResumed | DigestClosed
) -> None:
    """Keep what waits and set its timer; forget what waits no more."""
    timer = f"send:{row.notification_id}"
    if row.disposition in ("scheduled", "held") and row.due_at is not None:
        state[PENDING][row.notification_id] = _pending(row)
        state.schedule(timer, row.due_at)
    elif row.notification_id in state[PENDING]:
        del state[PENDING][row.notification_id]
        state.cancel(timer)


def _closed(state: State, row: DigestClosed) -> None:
    del state[DIGESTS][row.notification_id]
    state.cancel(f"digest:{row.notification_id}")
    owner = (row.user_id, row.digest_key, row.digest_window_ms)
    state[CLOSED][owner] = max(row.window_start, state[CLOSED].get(owner) or row.window_start)
    _set_aside(state, row)


def _pending(row: Decided) -> Pending:
    return Pending(
        row.user_id,
        row.template,
        row.template_version,
        row.priority,
        tuple(row.channels),
        row.params,
        row.expires_at,
    )


def _remember(state: State, row: NotificationAccepted) -> None:
    """Note the key, and forget up to two that are too old: as many as come, so none pile up."""
    user = row.user_id
    first, last = state[KEY_SPAN].get(user) or (0, 0)
    state[KEYS][user, row.idempotency_key] = Used(
        row.notification_id, row.fingerprint, row.event_time
    )
    state[KEY_ORDER][user, last] = row.idempotency_key
    last += 1
    for _ in range(2):
        oldest = state[KEY_ORDER][user, first]
        if state[KEYS][user, oldest].time_ms + KEY_MS > row.event_time:
            break
        del state[KEYS][user, oldest]
        del state[KEY_ORDER][user, first]
        first += 1
    state[KEY_SPAN][user] = (first, last)


def _preferences(row: PreferencesSet) -> Preferences:
    return Preferences(
        row.revision,
        tuple((one["channel"], one["category"]) for one in row.opt_outs),
        row.quiet_scope,
        row.quiet_start,
        row.quiet_end,
        row.timezone,
        row.locale,
    )


def _change(state: State, user_id: str, **fields: object) -> None:
    profile: Profile = state[PROFILES].get(user_id) or Profile()
    state[PROFILES][user_id] = msgspec.structs.replace(profile, **fields)


def _devices_without(state: State, user_id: str, token: str) -> tuple[str, ...]:
    profile: Profile = state[PROFILES].get(user_id) or Profile()
    return tuple(device for device in profile.devices if device != token)
