"""Who gets what, where and when: opt-outs and quiet hours. Pure.

One-time codes are asked for by the recipient that very moment, so neither holds them back.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streams.notifications.state import Preferences, Profile

MINUTE_MS = 60_000
DAY_MINUTES = 1_440
OTP, TRANSACTIONAL, MARKETING = "otp", "transactional", "marketing"
SPREAD_MS = 15 * 60_000
"""What quiet hours held back comes out over so long, and not all in the minute they end."""

_HELD = {
    "none": frozenset[str](),
    MARKETING: frozenset({MARKETING}),
    TRANSACTIONAL: frozenset({MARKETING, TRANSACTIONAL}),
}


def opted_out(preferences: Preferences, channel: str, priority: str, template: str) -> bool:
    """Whether the recipient does not want this on this channel."""
    if priority == OTP:
        return False
    return any(
        on in (channel, "*") and category in (priority, template, "*")
        for on, category in preferences.opt_outs
    )


def addresses(profile: Profile, channel: str) -> tuple[str, ...]:
    """Where a channel reaches the recipient: every device, the mail address, the number."""
    if channel == "push":
        return profile.devices
    one = profile.email if channel == "email" else profile.phone
    return (one,) if one else ()


def held_until(
    preferences: Preferences, priority: str, notification_id: str, time_ms: int
) -> int | None:
    """When a notification that quiet hours hold back at `time_ms` may go; None: it may go now.

    The end of the quiet hours and a delay of up to `SPREAD_MS` that follows from the id.
    """
    if priority not in _HELD[preferences.quiet_scope]:
        return None
    end = quiet_until(preferences, time_ms)
    if end is None:
        return None
    digest = blake2b(notification_id.encode(), digest_size=4).digest()
    return end + int.from_bytes(digest) % SPREAD_MS


def quiet_until(preferences: Preferences, time_ms: int) -> int | None:
    """The first instant from `time_ms` on whose local time is outside the quiet hours, to the
    minute; None where `time_ms` itself is.

    The clock on the wall decides, so the night it changes is an hour shorter or longer. Between two
    changes time is even: go to the end of the quiet hours, or, where the clock changes before, to
    the change, and look again.
    """
    zone = _zone(preferences.timezone)
    if not _quiet(preferences, _minute(time_ms, zone)):
        return None
    at = time_ms // MINUTE_MS * MINUTE_MS
    while _quiet(preferences, minute := _minute(at, zone)):
        end = at + (preferences.quiet_end - minute) % DAY_MINUTES * MINUTE_MS
        at = end if _offset(end, zone) == _offset(at, zone) else _change(at, end, zone)
    return at


def known_zone(name: str) -> bool:
    """Whether there is a time zone of that name."""
    try:
        _zone(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@lru_cache(maxsize=1_024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _quiet(preferences: Preferences, minute: int) -> bool:
    start, end = preferences.quiet_start, preferences.quiet_end
    return start <= minute < end if start <= end else not end <= minute < start


def _minute(time_ms: int, zone: ZoneInfo) -> int:
    """The minute of the local day."""
    local = datetime.fromtimestamp(time_ms / 1_000, zone)
    return local.hour * 60 + local.minute


def _offset(time_ms: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(time_ms / 1_000, zone).utcoffset()


def _change(before: int, after: int, zone: ZoneInfo) -> int:
    """The minute (as milliseconds) between two at which a zone's offset changes."""
    old = _offset(before, zone)
    while after - before > MINUTE_MS:
        middle = (before + after) // (2 * MINUTE_MS) * MINUTE_MS
        before, after = (middle, after) if _offset(middle, zone) == old else (before, middle)
    return after
