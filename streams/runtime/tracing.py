"""Traces across the log: W3C trace context in record headers, one span a batch with links.

A batch has many causes, so its span has links to the traces of some of its records, not a
parent (OpenTelemetry messaging conventions). All of it is a no-op until `configure` finds an
exporter in the standard `OTEL_*` environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from itertools import islice
from typing import TypeVar

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

V = TypeVar("V", bound=bytes | None)
Headers = Sequence[tuple[str, bytes | None]]
"""Record headers as confluent-kafka has them."""

LINKS_MAX = 16
"""Links of a batch span: enough to find examples, few enough to cost nothing."""
LOOKED_MAX = 256
"""Records of a batch whose headers are looked at for them, the first ones."""

_W3C = TraceContextTextMapPropagator()


def exporters(environ: Mapping[str, str]) -> list[str]:
    """Names of the exporters asked for by `OTEL_*`; none means that tracing is off."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return []
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    implied = "otlp" if any(environ.get(name) for name in endpoints) else "none"
    asked = environ.get("OTEL_TRACES_EXPORTER") or implied
    return [name.strip() for name in asked.split(",") if name.strip() not in ("", "none")]


def configure(service: str) -> bool:
    """Start tracing when the environment asks for it; answers whether it did.

    `OTEL_SERVICE_NAME` wins over `service`. Raises `ValueError` when an exporter is asked for
    that is not installed.
    """
    names = exporters(os.environ)
    if not names:
        return False
    resource = Resource.create(
        {} if "OTEL_SERVICE_NAME" in os.environ else {"service.name": service}
    )
    provider = TracerProvider(resource=resource)
    for name in names:
        found = entry_points(group="opentelemetry_traces_exporter", name=name)
        if not found:
            raise ValueError(
                f"OTEL_TRACES_EXPORTER={name} is not installed: pip install "
                "opentelemetry-exporter-otlp"
            )
        provider.add_span_processor(BatchSpanProcessor(next(iter(found)).load()()))
    trace.set_tracer_provider(provider)
    return True


def inject(headers: Sequence[tuple[str, V]] = ()) -> list[tuple[str, V | bytes]]:
    """The headers of a record to produce, with the current span's trace context in place of any
    older one; unchanged outside a span.
    """
    if not trace.get_current_span().get_span_context().is_valid:
        return list(headers)
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    kept = [(name, value) for name, value in headers if name not in _W3C.fields]
    return [*kept, *((name, value.encode()) for name, value in carrier.items())]


def extract(headers: Headers | None) -> trace.SpanContext | None:
    """The trace context a record carries, or None; never raises on foreign bytes."""
    carrier = {
        name: value.decode("ascii", "replace")
        for name, value in headers or ()
        if name in _W3C.fields and value is not None
    }
    found = trace.get_current_span(_W3C.extract(carrier)).get_span_context() if carrier else None
    return found if found is not None and found.is_valid else None


def links(records: Iterable[Headers | None]) -> list[trace.Link]:
    """Links to the first distinct *sampled* traces among the records, at most `LINKS_MAX`, of
    which the first `LOOKED_MAX` are looked at.
    """
    found: dict[int, trace.SpanContext] = {}
    for headers in islice(records, LOOKED_MAX):
        context = extract(headers)
        if context is not None and context.trace_flags.sampled:
            found.setdefault(context.trace_id, context)
        if len(found) == LINKS_MAX:
            break
    return [trace.Link(context) for context in found.values()]


@contextmanager
def request_span(
    method: str, headers: Headers, *, provider: trace.TracerProvider | None = None
) -> Iterator[trace.Span]:
    """The span of one HTTP request, in the trace that its headers name or in one of its own."""
    caller = extract(headers)
    context = None
    if caller is not None:
        context = trace.set_span_in_context(trace.NonRecordingSpan(caller))
    with trace.get_tracer(__name__, tracer_provider=provider).start_as_current_span(
        method,
        context,
        kind=trace.SpanKind.SERVER,
        attributes={"http.request.method": method},
    ) as span:
        yield span


@contextmanager
def batch_span(
    agent: str,
    topic: str,
    partition: int,
    rows: int,
    *,
    records: Iterable[Headers | None] = (),
    began_ns: int | None = None,
    provider: trace.TracerProvider | None = None,
) -> Iterator[trace.Span]:
    """The span of one batch, named and labelled by the messaging conventions; from now on, or
    from `began_ns` (since 1970) on.

    An exception is recorded on it and passes. While nobody traces there is no span, and `records`
    are not looked at.
    """
    provider = provider or trace.get_tracer_provider()
    if not isinstance(provider, TracerProvider):
        yield trace.INVALID_SPAN
        return
    tracer = trace.get_tracer(__name__, tracer_provider=provider)
    with tracer.start_as_current_span(
        f"process {topic}",
        kind=trace.SpanKind.CONSUMER,
        links=links(records),
        start_time=began_ns,
        attributes={
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(partition),
            "messaging.consumer.group.name": agent,
            "messaging.batch.message_count": rows,
        },
    ) as span:
        yield span
