"""OTLP log records to lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from connectors.telemetry.line import (
    BODY_CHARS_MAX,
    NANOS_MS,
    SERVICE_CHARS_MAX,
    TIME_MS_MAX,
    UNKNOWN,
    Line,
    clean,
    hexadecimal,
    labelled,
    level_named,
    level_numbered,
)
from connectors.telemetry.otlp import values

SERVICE, NAMESPACE, INSTANCE = "service.name", "service.namespace", "service.instance.id"
HOST = "host.name"


def lines(request: Any, now_ns: int) -> Iterator[Line | None]:
    """One line a record, in order; None for a record dated past `TIME_MS_MAX`. A record without
    a time has the time it was observed, else now.
    """
    for resource_logs in request.resource_logs:
        resource = dict(values.pairs(resource_logs.resource.attributes))
        service, instance = _named(resource)
        for scope_logs in resource_logs.scope_logs:
            scope = scope_logs.scope.name
            for record in scope_logs.log_records:
                yield _line(record, (service, instance), scope, resource, now_ns)


def _named(resource: dict[str, Any]) -> tuple[str, str]:
    service = str(resource.pop(SERVICE, "") or "unknown")
    namespace = str(resource.pop(NAMESPACE, "") or "")
    instance = str(resource.pop(INSTANCE, "") or resource.get(HOST) or "")
    full = f"{namespace}/{service}" if namespace else service
    return clean(full, SERVICE_CHARS_MAX), clean(instance, SERVICE_CHARS_MAX)


def _line(
    record: Any, named: tuple[str, str], scope: str, resource: dict[str, Any], now_ns: int
) -> Line | None:
    time_ns = record.time_unix_nano or record.observed_time_unix_nano or now_ns
    if time_ns // NANOS_MS >= TIME_MS_MAX:
        return None
    level = level_numbered(record.severity_number)
    if level == UNKNOWN and record.severity_text:
        level = level_named(record.severity_text)
    own = values.pairs(record.attributes)
    also = [("scope", scope), ("event_name", record.event_name)]
    return Line(
        service=named[0],
        instance=named[1],
        time_ns=time_ns,
        body=clean(_body(record.body), BODY_CHARS_MAX),
        level=level,
        trace_id=hexadecimal(record.trace_id.hex(), 32),
        span_id=hexadecimal(record.span_id.hex(), 16),
        labels=labelled([*own, *also, *resource.items()]),
    )


def _body(value: Any) -> str:
    plain = values.plain(value)
    if isinstance(plain, str):
        return plain
    return "" if plain is None else orjson.dumps(plain, option=orjson.OPT_NON_STR_KEYS).decode()
