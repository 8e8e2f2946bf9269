"""What the webhook decider remembers, by partition: one table a thing, all values immutable.

Tables by key:
- `tenants`: tenant → how many messages, which endpoints, where the hours begin;
- `endpoints`: (tenant, endpoint) → its settings and secrets;
- `failing`: (tenant, endpoint) → since when no delivery has succeeded;
- `lanes`: (tenant, endpoint, order key) → the numbers of what is on its way and waits; `waiting`:
  (tenant, endpoint, order key, number) → the delivery. The first of a lane is on its way, the
  others wait for it. An idle lane is not there.
"""

from __future__ import annotations

from typing import Any

import msgspec

TENANTS, ENDPOINTS, FAILING = "tenants", "endpoints", "failing"
LANES, WAITING = "lanes", "waiting"

HOUR_MS = 3_600_000
HOURS_MAX = 720
"""A recovery goes back so many hours in which there were messages."""


class Secret(msgspec.Struct, frozen=True):
    """A signing secret; `expires_ms` is None for the current one."""

    secret: str
    expires_ms: int | None = None


class Endpoint(msgspec.Struct, frozen=True):
    """An endpoint as it stands; `disabled` says why it gets nothing, "" for enabled."""

    url: str
    event_types: tuple[str, ...]
    ordered: bool
    rate_per_s: int
    description: str
    secrets: tuple[Secret, ...]
    created_ms: int
    revision: int = 1
    disabled: str = ""

    def wants(self, event_type: str) -> bool:
        """Whether messages of this type go here."""
        return not self.event_types or any(fits(one, event_type) for one in self.event_types)


class Tenant(msgspec.Struct, frozen=True):
    """`sequence` is the number of the next message; `hours` are (begin of an hour in milliseconds,
    first number in it), oldest first; `revisions` counts changes of endpoints, so that one that is
    deleted and made again does not begin anew.
    """

    sequence: int = 0
    endpoints: tuple[str, ...] = ()
    hours: tuple[tuple[int, int], ...] = ()
    revisions: int = 0

    def first_since(self, time_ms: int) -> int:
        """A number that no message since that time is below."""
        before = [number for hour_ms, number in self.hours if hour_ms <= time_ms]
        if before:
            return before[-1]
        return self.hours[0][1] if self.hours else self.sequence


class Failing(msgspec.Struct, frozen=True):
    """The first and the last of failures without a success between."""

    since_ms: int
    last_ms: int


class Waiting(msgspec.Struct, frozen=True):
    """A delivery in a lane."""

    delivery_id: str
    message_id: str
    sequence: int
    event_type: str


TABLES: dict[str, Any] = {
    TENANTS: Tenant,
    ENDPOINTS: Endpoint,
    FAILING: Failing,
    LANES: tuple[int, int],
    WAITING: Waiting,
}


def fits(pattern: str, event_type: str) -> bool:
    """Whether an event type is meant: by name, or by `a.*` with all that begins with `a.`."""
    if pattern.endswith(".*"):
        return event_type.startswith(pattern[:-1])
    return pattern in ("*", event_type)
