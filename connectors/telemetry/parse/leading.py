"""Lines that begin with their time and their level, and go on in plain words.

`[2024-05-07 10:55:53,434] INFO …` (log4j), `2024-05-07T10:58:13.877Z [INFO]  …` (hclog),
`I0507 12:04:17.597069  1 file.go:169] …` (klog: UTC, in the year that is nearest to now).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from connectors.telemetry.line import UNKNOWN, level_named
from connectors.telemetry.parse.said import SECOND_NS, Parsed, Unparsed, rfc3339
from connectors.telemetry.parse.syslog import nearest

_TIMED = re.compile(
    r"\[?(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)\]?\s+(.*)",
    re.ASCII | re.DOTALL,
)
_LEVEL = re.compile(r"\[?([A-Za-z]{4,9})\]?:?(?=[\s\[:]|$)", re.ASCII)
_KLOG = re.compile(
    r"([IWEFD])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6})\s+(\d+) ([^\s\]]+)\] (.*)",
    re.ASCII | re.DOTALL,
)


def leading(text: str, now_ns: int) -> Parsed | Unparsed:
    """The body keeps everything behind the time, the level's word included."""
    if klog := _KLOG.fullmatch(text):
        return _klog(klog, now_ns)
    match = _TIMED.fullmatch(text)
    if match is None:
        return Unparsed("no time in front")
    time_ns = rfc3339(match[1])
    if time_ns is None:
        return Unparsed(f"not a time: {match[1][:40]}")
    word = _LEVEL.match(match[2])
    return Parsed(body=match[2], time_ns=time_ns, level=level_named(word[1]) if word else UNKNOWN)


def _klog(match: re.Match[str], now_ns: int) -> Parsed | Unparsed:
    level, month, day, hour, minute, second, micros, thread, source, body = match.groups()
    now = datetime.fromtimestamp(now_ns // SECOND_NS, UTC)
    time_ns = nearest(now, (int(month), int(day), int(hour), int(minute), int(second)))
    if time_ns is None:
        return Unparsed("not a klog time")
    return Parsed(
        body=body,
        time_ns=time_ns + int(micros) * 1_000,
        level=level_named(level),
        labels={"thread": thread, "source": source},
    )
