"""One line of a web server's access log: common and combined, Apache and nginx.

Source: Apache HTTP Server, mod_log_config; nginx, ngx_http_log_module.
"""

from __future__ import annotations

import re
from datetime import datetime

from connectors.telemetry.line import labelled
from connectors.telemetry.parse.said import Parsed, Unparsed, nanoseconds, zone

_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_LINE = re.compile(
    rf"(\S+) (\S+) (\S+) \[([^\]]+)\] {_QUOTED} (\d{{3}}) (\d+|-)(?: {_QUOTED} {_QUOTED})?(?: .*)?",
    re.ASCII | re.DOTALL,
)
_TIME = re.compile(r"(\d\d)/([A-Z][a-z]{2})/(\d{4}):(\d\d):(\d\d):(\d\d) ([+-]\d{4})", re.ASCII)
_REQUEST = re.compile(r"([A-Z]+) (\S+)(?: (HTTP/[\d.]+))?", re.ASCII)
MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}


def access(text: str, now_ns: int) -> Parsed | Unparsed:
    """A request. Its level follows its status: 5xx ERROR, 4xx WARN, others INFO."""
    match = _LINE.fullmatch(text)
    if match is None:
        return Unparsed("not an access log line")
    client, _, user, time, request, status, size, referer, agent = match.groups()
    time_ns = _moment(time)
    if time_ns is None:
        return Unparsed(f"not a time of an access log: {time[:40]}")
    asked = _REQUEST.fullmatch(request)
    method, target, protocol = asked.groups() if asked else (None, None, None)
    path, _, query = (target or "").partition("?")
    labels = {
        "client": client, "user": user, "method": method, "path": path, "query": query,
        "protocol": protocol, "status": status, "bytes": size, "referer": referer, "agent": agent,
    }  # fmt: skip
    return Parsed(
        body=f"{request} {status}",
        time_ns=time_ns,
        level={"5": "ERROR", "4": "WARN"}.get(status[0], "INFO"),
        labels=labelled((name, value) for name, value in labels.items() if value != "-"),
    )


def _moment(text: str) -> int | None:
    match = _TIME.fullmatch(text)
    if match is None or match[2] not in MONTHS:
        return None
    day, _, year, hour, minute, second, offset = match.groups()
    try:
        moment = datetime(int(year), MONTHS[match[2]], int(day), int(hour), int(minute),
                          int(second), tzinfo=zone(offset))  # fmt: skip
        return nanoseconds(moment)
    except (ValueError, OverflowError):
        return None
