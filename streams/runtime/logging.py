"""Logs: one event a line, JSON for machines or colours for people, with the same fields.

`configure` routes both structlog and the standard library (Faust, confluent-kafka, the ASGI
server) through the same steps, so that a library's line has the same shape as ours: `timestamp`
(ISO 8601, UTC), `level`, `logger`, `event`, what was bound to the context (`agent`, `topic`,
`partition`, …), `trace_id` inside a span, and `exception` with its frames but never their
local variables.

Faust's worker must be started with `override_logging=False`, or it installs its own handlers.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import structlog
from opentelemetry import trace
from structlog.tracebacks import ExceptionDictTransformer
from structlog.types import EventDict, Processor, WrappedLogger

SECRET_WORDS = ("password", "passwd", "secret", "token", "authorization", "api_key", "access_key")
"""A field whose name has one of these is never printed."""


def configure(
    level: str = "INFO", *, as_json: bool | None = None, stream: TextIO | None = None
) -> None:
    """Set up all logging of the process; calling it again replaces the set-up.

    `as_json` None means: colours on a terminal, JSON elsewhere. `stream` is stderr by default.
    Raises `ValueError` on an unknown level.
    """
    out = stream or sys.stderr
    if as_json is None:
        as_json = not out.isatty()
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_last(as_json),
            ],
        )
    )
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def redact(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace the values of fields that are secret by their name."""
    for name in event:
        if any(word in name.lower() for word in SECRET_WORDS):
            event[name] = "***"
    return event


def in_span(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add `trace_id` and `span_id` (hex, as W3C writes them) inside a span."""
    span = trace.get_current_span().get_span_context()
    if span.is_valid:
        event["trace_id"] = trace.format_trace_id(span.trace_id)
        event["span_id"] = trace.format_span_id(span.span_id)
    return event


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        in_span,
        redact,
    ]


def _last(as_json: bool) -> list[Processor]:
    if not as_json:
        return [structlog.dev.ConsoleRenderer()]
    frames = ExceptionDictTransformer(show_locals=False, max_frames=30)
    return [
        structlog.processors.ExceptionRenderer(frames),
        structlog.processors.JSONRenderer(default=str),
    ]
