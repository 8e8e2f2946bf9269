"""Lines that are JSON objects, and what fields with the usual names mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from connectors.telemetry.line import UNKNOWN, hexadecimal, labelled, level_named
from connectors.telemetry.parse.said import Parsed, Unparsed, moment_of

TIMES = ("time", "timestamp", "@timestamp", "ts", "t", "datetime", "date")
LEVEL_NAMES = ("level", "severity", "lvl", "loglevel", "log.level", "levelname")
BODIES = ("message", "msg", "body", "log", "event", "@message")
SERVICES = ("service", "service.name", "service_name", "app", "application")
HOSTS = ("host", "hostname", "host.name", "instance", "pod")
TRACES = ("trace_id", "traceId", "traceID", "trace.id", "dd.trace_id")
SPANS = ("span_id", "spanId", "spanID", "span.id")
NUMBERED = {10: "TRACE", 20: "DEBUG", 30: "INFO", 40: "WARN", 50: "ERROR", 60: "FATAL"}
"""Levels of bunyan and pino."""
DEPTH_MAX = 4


def json_object(text: str, now_ns: int) -> Parsed | Unparsed:
    """A JSON object; nested objects become labels with dotted names."""
    try:
        found = orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError) as error:
        return Unparsed(f"not JSON: {error}")
    if not isinstance(found, dict):
        return Unparsed("JSON, but not an object")
    return told(list(_flat(found)), text)


def _flat(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and depth < DEPTH_MAX:
            yield from _flat(inner, f"{prefix}{key}.", depth + 1)
        else:
            yield f"{prefix}{key}", inner


def told(pairs: list[tuple[str, Any]], text: str) -> Parsed:
    """What named values say. Those with a meaning are taken, all others are labels; a line
    without a message keeps its text as one.
    """
    fields = dict(pairs)
    time_ns = _take_first(fields, TIMES, moment_of)
    level = _take_first(fields, LEVEL_NAMES, _level)
    trace_id = _take_first(fields, TRACES, lambda v: hexadecimal(str(v), 32))
    span_id = _take_first(fields, SPANS, lambda v: hexadecimal(str(v), 16))
    body = _take_first(fields, BODIES, _some_text)
    service = _take_first(fields, SERVICES, _some_text)
    host = _take_first(fields, HOSTS, _some_text)
    return Parsed(
        body=text if body is None else body,
        time_ns=time_ns,
        level=level or UNKNOWN,
        service=service or "",
        host=host or "",
        trace_id=trace_id,
        span_id=span_id,
        labels=labelled(fields.items()),
    )


def _take_first(fields: dict[str, Any], names: Iterable[str], read: Any) -> Any:
    """The first of these that can be read, which is then no label any more."""
    for name in names:
        if name in fields:
            value = read(fields[name])
            if value is not None:
                del fields[name]
                return value
    return None


def _level(value: Any) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return NUMBERED.get(value // 10 * 10)
    found = level_named(str(value))
    return None if found == UNKNOWN else found


def _some_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
