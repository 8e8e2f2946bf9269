"""Syslog: RFC 5424, and the older RFC 3164 that BSD and most devices still speak."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from connectors.telemetry.line import hexadecimal, labelled
from connectors.telemetry.parse.access import MONTHS
from connectors.telemetry.parse.said import SECOND_NS, Parsed, Unparsed, nanoseconds, rfc3339

_HEADER = re.compile(r"<(\d{1,3})>1 (\S+) (\S{1,255}) (\S{1,48}) (\S{1,128}) (\S{1,32}) ", re.ASCII)
_ELEMENT = re.compile(r'\[([^\s\]="]{1,32})((?: [^\s\]="]{1,32}="(?:[^"\\\]]|\\.)*")*)\]', re.ASCII)
_PARAMETER = re.compile(r' ([^\s\]="]{1,32})="((?:[^"\\\]]|\\.)*)"', re.ASCII)
_BSD = re.compile(
    r"<(\d{1,3})>([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\S+) (.*)", re.ASCII | re.DOTALL
)
_TAG = re.compile(r"([^\s:\[\]]{1,64})(?:\[([^\]]{1,64})\])?: ?", re.ASCII)
FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv",
    "ftp", "ntp", "audit", "alert", "clock", *(f"local{n}" for n in range(8)),
)  # fmt: skip
SEVERITIES = ("FATAL", "FATAL", "FATAL", "ERROR", "WARN", "INFO", "INFO", "DEBUG")
AHEAD = timedelta(days=1)
"""A line of RFC 3164 dated further ahead than this is from the year before."""


def rfc5424(text: str, now_ns: int) -> Parsed | Unparsed:
    """`<PRI>1 TIME HOST APP PROCID MSGID [SD] MSG`, with structured data as labels."""
    header = _HEADER.match(text)
    if header is None:
        return Unparsed("not an RFC 5424 header")
    priority, time, host, app, process, message_id = header.groups()
    if int(priority) > 191:
        return Unparsed(f"priority {priority} is past 191")
    time_ns = None if time == "-" else rfc3339(time)
    if time_ns is None and time != "-":
        return Unparsed(f"not an RFC 3339 time: {time[:40]}")
    at, data = header.end(), dict[str, str]()
    if text[at : at + 1] == "-":
        at += 1
    else:
        while (element := _ELEMENT.match(text, at)) is not None:
            data |= _parameters(element)
            at = element.end()
        if at == header.end():
            return Unparsed("not RFC 5424 structured data")
    rest = text[at:]
    if rest and not rest.startswith(" "):
        return Unparsed("no space after the structured data")
    named = {"procid": process, "msgid": message_id, **data}
    sender = (host, app)
    return _said(int(priority), time_ns, sender, named, rest[1:].removeprefix("\ufeff"))


def rfc3164(text: str, now_ns: int) -> Parsed | Unparsed:
    """`<PRI>Mmm dd hh:mm:ss HOST TAG[PID]: MSG`: UTC, in the year that is nearest to now."""
    match = _BSD.fullmatch(text)
    if match is None:
        return Unparsed("not syslog: neither RFC 5424 nor RFC 3164")
    priority, month, day, hour, minute, second, host, rest = match.groups()
    if int(priority) > 191 or month not in MONTHS:
        return Unparsed("not an RFC 3164 header")
    now = datetime.fromtimestamp(now_ns // SECOND_NS, UTC)
    clock = (MONTHS[month], int(day), int(hour), int(minute), int(second))
    time_ns = nearest(now, clock)
    if time_ns is None:
        return Unparsed("not an RFC 3164 time")
    tag = _TAG.match(rest)
    app, process = (tag[1], tag[2] or "-") if tag else ("-", "-")
    body = rest[tag.end() :] if tag else rest
    return _said(int(priority), time_ns, (host, app), {"procid": process}, body)


def nearest(now: datetime, clock: tuple[int, int, int, int, int]) -> int | None:
    """Nanoseconds of month, day, hour, minute and second in the last year that does not put them
    ahead of now; None for a date that is none.
    """
    for year in (now.year + 1, now.year, now.year - 1):
        try:
            moment = datetime(year, *clock, tzinfo=UTC)
        except ValueError:  # 29 February, or no date at all
            continue
        if moment <= now + AHEAD:
            return nanoseconds(moment)
    return None


def _parameters(element: re.Match[str]) -> Iterator[tuple[str, str]]:
    name = element[1]
    for parameter in _PARAMETER.finditer(element[2]):
        yield f"{name}.{parameter[1]}", re.sub(r'\\(["\\\]])', r"\1", parameter[2])


def _said(
    priority: int, time_ns: int | None, sender: tuple[str, str], named: dict[str, str], body: str
) -> Parsed:
    host, app = sender
    facility, severity = divmod(priority, 8)
    named = {name: value for name, value in named.items() if value != "-"}
    trace = next((v for n, v in named.items() if n.endswith((".trace_id", ".traceId"))), None)
    return Parsed(
        body=body,
        time_ns=time_ns,
        level=SEVERITIES[severity],
        service="" if app == "-" else app,
        host="" if host == "-" else host,
        trace_id=hexadecimal(trace, 32),
        labels=labelled({"facility": FACILITIES[facility], **named}.items()),
    )
