"""What the notification decider remembers, by partition: one table a thing, all values immutable.

Tables by key:
- `profiles`: recipient → preferences, addresses, devices;
- `pending`: notification → what waits for its time (scheduled, held by quiet hours);
- `digests`: digest → what was gathered so far; `closed`: (recipient, key, window length) → begin
  of the last window that was closed;
- `keys`: (recipient, idempotency key) → the notification it was used for; `key_order`: (recipient,
  number) → key, and `key_span`: recipient → the numbers in use, so that old keys are forgotten in
  the order they came.
"""

from __future__ import annotations

from typing import Any

import msgspec

PROFILES, PENDING = "profiles", "pending"
DIGESTS, CLOSED = "digests", "closed"
KEYS, KEY_ORDER, KEY_SPAN = "keys", "key_order", "key_span"


class Preferences(msgspec.Struct, frozen=True):
    """What a recipient wants. `opt_outs` are (channel, category), `*` for all. Quiet hours are
    minutes after local midnight. `revision` counts changes; 0 is nobody's choice.
    """

    revision: int = 0
    opt_outs: tuple[tuple[str, str], ...] = ()
    quiet_scope: str = "none"
    quiet_start: int = 0
    quiet_end: int = 0
    timezone: str = "UTC"
    locale: str = ""


class Profile(msgspec.Struct, frozen=True):
    """A recipient: preferences and addresses; `devices` are tokens, oldest first."""

    preferences: Preferences = Preferences()
    email: str = ""
    phone: str = ""
    devices: tuple[str, ...] = ()


class Pending(msgspec.Struct, frozen=True):
    """A notification that waits, with all that is needed to send it."""

    user_id: str
    template: str
    template_version: str
    priority: str
    channels: tuple[str, ...]
    params: str
    expires_at: int | None


class Item(msgspec.Struct, frozen=True):
    """One notification inside a digest."""

    notification_id: str
    params: str


class Digest(msgspec.Struct, frozen=True):
    """A digest that gathers. What is sent goes by the newest item: its template and channels.
    `more` counts the items that it does not keep.
    """

    newest: Pending
    digest_key: str
    window_start: int
    window_ms: int
    items: tuple[Item, ...]
    more: int = 0


class Used(msgspec.Struct, frozen=True):
    """What an idempotency key was used for, and when."""

    notification_id: str
    fingerprint: str
    time_ms: int


TABLES: dict[str, Any] = {
    PROFILES: Profile,
    PENDING: Pending,
    DIGESTS: Digest,
    CLOSED: int,
    KEYS: Used,
    KEY_ORDER: str,
    KEY_SPAN: tuple[int, int],
}
