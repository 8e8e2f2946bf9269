"""What a parser answers, and how times are read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone

from connectors.telemetry.line import TIME_MS_MAX, UNKNOWN

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a line says of itself; `time_ns` is None where it has no time."""

    body: str
    time_ns: int | None = None
    level: str = UNKNOWN
    service: str = ""
    host: str = ""
    trace_id: str | None = None
    span_id: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unparsed:
    """A line that is not in the format, and why."""

    reason: str


_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9})\d*)?"
    r"(?: ?(Z|z|UTC|[+-]\d\d:?\d\d))?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d{9,19}(?:\.\d{1,9})?", re.ASCII)


def rfc3339(text: str) -> int | None:
    """Nanoseconds since 1970 of a time in RFC 3339 or a close relative (blank, comma, no zone:
    UTC); None for anything else, also for dates that are none.
    """
    match = _RFC3339.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    try:
        # A leap second is the second that follows it: no clock of ours counts it.
        leap = second == 60
        moment = datetime(year, month, day, hour, minute, 59 if leap else second, tzinfo=UTC)
        moment += timedelta(seconds=leap) - zone(match[8] or "Z").utcoffset(None)
    except (ValueError, OverflowError):
        return None
    return nanoseconds(moment, int((match[7] or "0").ljust(9, "0")))


def zone(text: str) -> timezone:
    """`Z`, `+0200` or `-05:30`; `ValueError` past a day."""
    if text in {"Z", "z", "UTC"}:
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:])
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def nanoseconds(moment: datetime, fraction_ns: int = 0) -> int | None:
    """Nanoseconds since 1970 of whole seconds and a fraction; None before 1970."""
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    time_ns = (since.days * 86_400 + since.seconds) * SECOND_NS + fraction_ns
    return time_ns if time_ns >= 0 else None


def epoch(value: object) -> int | None:
    """Nanoseconds of a number of seconds, milliseconds, microseconds or nanoseconds since 1970:
    the unit that puts it between 1973 and the year 10000, smallest times first.
    """
    text = str(value).strip()
    if isinstance(value, bool) or not _NUMBER.fullmatch(text):
        return None
    whole, _, fraction = text.partition(".")
    for scale_ns in (SECOND_NS, 1_000_000, 1_000, 1):
        time_ns = int(whole) * scale_ns
        if fraction:
            time_ns += int(fraction.ljust(9, "0")) * scale_ns // SECOND_NS
        if 100_000_000 * SECOND_NS <= time_ns < 20_000_000_000 * SECOND_NS:
            return time_ns
    return None


def moment_of(value: object) -> int | None:
    """A time as text or as a number; None for what is none, or past `TIME_MS_MAX`."""
    found = rfc3339(value) if isinstance(value, str) else None
    found = epoch(value) if found is None else found
    return found if found is not None and found // 1_000_000 < TIME_MS_MAX else None
