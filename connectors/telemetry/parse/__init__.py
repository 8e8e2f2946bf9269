"""From the text of one line to what it says. Pure, and total: no input raises.

A parser answers `Parsed`, or `Unparsed` with the reason. `parse` falls back to the plain text, so
no line is lost for being malformed: it keeps the reason as the label `parse_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from connectors.telemetry.line import (
    BODY_CHARS_MAX,
    SERVICE_CHARS_MAX,
    Line,
    clean,
    labelled,
)
from connectors.telemetry.parse.access import access
from connectors.telemetry.parse.leading import leading
from connectors.telemetry.parse.logfmt import logfmt
from connectors.telemetry.parse.said import Parsed, Unparsed
from connectors.telemetry.parse.structured import json_object
from connectors.telemetry.parse.syslog import rfc3164, rfc5424

Format = Literal["auto", "json", "logfmt", "access", "syslog", "leading", "plain"]
FORMATS: tuple[Format, ...] = get_args(Format)
ERROR_LABEL = "parse_error"

__all__ = ["FORMATS", "Format", "Origin", "Parsed", "Unparsed", "line", "parse"]


@dataclass(frozen=True)
class Origin:
    """What is known of a line before it is read. `labels` are added to those it has itself."""

    service: str
    instance: str = ""
    format: Format = "auto"
    labels: Mapping[str, str] | None = None


def plain(text: str, now_ns: int) -> Parsed | Unparsed:
    """The line as it is."""
    return Parsed(body=text)


def syslog(text: str, now_ns: int) -> Parsed | Unparsed:
    """RFC 5424 where the version digit says so, RFC 3164 else."""
    found = rfc5424(text, now_ns)
    return found if isinstance(found, Parsed) else rfc3164(text, now_ns)


def auto(text: str, now_ns: int) -> Parsed | Unparsed:
    """The format that the line begins like; plain where it is none of them."""
    head = text.lstrip()[:1]
    if head == "{":
        return json_object(text, now_ns)
    if head == "<":
        return syslog(text, now_ns)
    for parser in (leading, access, logfmt):
        found = parser(text, now_ns)
        if isinstance(found, Parsed):
            return found
    return plain(text, now_ns)


_PARSERS: Mapping[Format, Callable[[str, int], Parsed | Unparsed]] = {
    "auto": auto,
    "json": json_object,
    "logfmt": logfmt,
    "access": access,
    "syslog": syslog,
    "leading": leading,
    "plain": plain,
}


def parse(text: str, format: Format, now_ns: int) -> Parsed:
    """What a line says; the plain text and the reason where it is not in that format.

    `now_ns` is when the line was read: RFC 3164 has no year in its times.
    """
    found = _PARSERS[format](text, now_ns)
    if isinstance(found, Parsed):
        return found
    return Parsed(body=text, labels={ERROR_LABEL: found.reason})


def line(text: str, origin: Origin, now_ns: int, line_id: str = "") -> Line:
    """The line of a text that was read from `origin`, dated now where it has no time."""
    said = parse(text, origin.format, now_ns)
    labels = labelled([*said.labels.items(), *(origin.labels or {}).items()])
    return Line(
        service=clean(origin.service or said.service or "unknown", SERVICE_CHARS_MAX),
        instance=clean(origin.instance or said.host, SERVICE_CHARS_MAX),
        time_ns=now_ns if said.time_ns is None else said.time_ns,
        body=clean(said.body, BODY_CHARS_MAX),
        level=said.level,
        trace_id=said.trace_id,
        span_id=said.span_id,
        labels=labels,
        line_id=line_id,
    )
