"""Opt-outs and quiet hours: the whole matrix, and every minute around changes of the clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.notifications.preferences import (
    SPREAD_MS,
    held_until,
    known_zone,
    opted_out,
    quiet_until,
)
from streams.notifications.state import Preferences

MINUTE = 60_000
CHANNELS = ("email", "sms", "push")
CATEGORIES = ("*", "otp", "transactional", "marketing", "newsletter")


def ms(text: str, zone: str = "UTC", fold: int = 0) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(local.timestamp()) * 1_000


@pytest.mark.parametrize(
    ("on", "category", "channel", "priority"),
    list(product(("*", *CHANNELS), CATEGORIES, CHANNELS, ("otp", "transactional", "marketing"))),
)
def test_an_opt_out_stops_what_it_names_and_nothing_else(
    on: str, category: str, channel: str, priority: str
) -> None:
    preferences = Preferences(opt_outs=((on, category),))
    template = "newsletter" if priority == "marketing" else "other"
    named = {"*", priority, template}
    expected = priority != "otp" and on in {"*", channel} and category in named
    assert opted_out(preferences, channel, priority, template) is expected


@pytest.mark.parametrize(
    ("scope", "held"),
    [
        ("none", set()),
        ("marketing", {"marketing"}),
        ("transactional", {"marketing", "transactional"}),
    ],
)
def test_quiet_hours_hold_back_up_to_their_scope_and_never_codes(
    scope: str, held: set[str]
) -> None:
    preferences = Preferences(quiet_scope=scope, quiet_start=0, quiet_end=60, timezone="UTC")
    night = ms("2026-01-01T00:30")
    for priority in ("otp", "transactional", "marketing"):
        until = held_until(preferences, priority, "n", night)
        assert (until is not None) is (priority in held)


def test_what_was_held_comes_out_spread_and_always_at_the_same_time() -> None:
    preferences = Preferences(quiet_scope="marketing", quiet_start=0, quiet_end=60)
    times = [
        held_until(preferences, "marketing", f"n-{n}", ms("2026-01-01T00:30")) for n in range(200)
    ]
    again = [
        held_until(preferences, "marketing", f"n-{n}", ms("2026-01-01T00:10")) for n in range(200)
    ]
    end = ms("2026-01-01T01:00")
    assert times == again
    assert all(time is not None and end <= time < end + SPREAD_MS for time in times)
    assert len(set(times)) > 190


BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("now", "start", "end", "expected"),
    [
        # An ordinary night, across midnight.
        (ms("2026-01-10T23:00", BERLIN), 22 * 60, 7 * 60, ms("2026-01-11T07:00", BERLIN)),
        # Clocks go from 02:00 to 03:00: the night is an hour shorter.
        (ms("2026-03-28T23:00", BERLIN), 22 * 60, 7 * 60, ms("2026-03-29T05:00")),
        # The end is jumped over: it is the jump.
        (ms("2026-03-29T00:10", BERLIN), 0, 150, ms("2026-03-29T01:00")),
        # Clocks go from 03:00 back to 02:00: the night is an hour longer.
        (ms("2026-10-24T23:00", BERLIN), 22 * 60, 7 * 60, ms("2026-10-25T06:00")),
        # The end comes twice: the first that lies ahead.
        (ms("2026-10-25T01:00", BERLIN), 0, 150, ms("2026-10-25T02:30", BERLIN)),
        (ms("2026-10-25T02:10", BERLIN, 1), 0, 150, ms("2026-10-25T02:30", BERLIN, 1)),
    ],
)
def test_quiet_hours_follow_the_clock_on_the_wall(
    now: int, start: int, end: int, expected: int
) -> None:
    preferences = Preferences(quiet_start=start, quiet_end=end, timezone=BERLIN)
    assert quiet_until(preferences, now) == expected


CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00"),  # by half an hour
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Asia/Kathmandu", "2026-05-05T00:00"),  # never, at +05:45
    ("Pacific/Apia", "2011-12-30T10:00"),  # a whole day is missing
]


def quiet(preferences: Preferences, time_ms: int) -> bool:
    local = datetime.fromtimestamp(time_ms / 1_000, UTC).astimezone(ZoneInfo(preferences.timezone))
    minute = local.hour * 60 + local.minute
    start, end = preferences.quiet_start, preferences.quiet_end
    inside = start <= minute < end
    return inside if start <= end else not end <= minute < start


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CHANGES),
    st.integers(-26 * 60, 26 * 60),
    st.integers(0, 1_439),
    st.integers(0, 1_439),
)
def test_the_end_is_the_first_minute_that_is_not_quiet(
    change: tuple[str, str], minutes: int, start: int, end: int
) -> None:
    """Against every minute counted one by one."""
    zone, at = change
    preferences = Preferences(quiet_start=start, quiet_end=end, timezone=zone)
    now = ms(at) + minutes * MINUTE
    if not quiet(preferences, now):
        assert quiet_until(preferences, now) is None
        return
    expected = now
    while quiet(preferences, expected):
        expected += MINUTE
    assert quiet_until(preferences, now) == expected


@pytest.mark.parametrize("name", ["", "Mars/Base", "../etc/passwd", "Europe", "\x00", "a" * 300])
def test_what_is_no_time_zone_is_known_as_such(name: str) -> None:
    assert not known_zone(name)
    assert known_zone("Europe/Berlin")


def test_a_day_has_no_quiet_hours_without_a_length() -> None:
    preferences = Preferences(quiet_start=300, quiet_end=300)
    day = ms("2026-01-01T00:00")
    step = timedelta(minutes=1) // timedelta(milliseconds=1)
    assert all(quiet_until(preferences, day + n * step) is None for n in range(1_440))
