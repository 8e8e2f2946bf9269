"""Trace context survives the log; batches link to sampled traces; nothing happens when off."""

from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from streams.runtime import tracing

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


def carried(trace_id: str = TRACE, flags: str = "01") -> list[tuple[str, bytes | None]]:
    return [("traceparent", f"00-{trace_id}-{SPAN}-{flags}".encode())]


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(exporter))
    return made


def test_what_is_injected_is_extracted(provider: TracerProvider) -> None:
    with provider.get_tracer("api").start_as_current_span("POST") as span:
        headers = tracing.inject([("ce_id", b"7"), ("traceparent", b"00-old")])
    assert [name for name, _ in headers] == ["ce_id", "traceparent"]
    context = tracing.extract(headers)
    assert context is not None
    assert context.trace_id == span.get_span_context().trace_id
    assert context.span_id == span.get_span_context().span_id


def test_outside_a_span_headers_stay_as_they_are() -> None:
    assert tracing.inject([("ce_id", b"7"), ("x", None)]) == [("ce_id", b"7"), ("x", None)]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("other", b"x")],
        [("traceparent", None)],
        [("traceparent", b"")],
        [("traceparent", b"\xff\xfe")],
        [("traceparent", b"00-0-0-01")],
        carried(trace_id="0" * 32),
    ],
)
def test_foreign_bytes_are_no_context(headers: tracing.Headers | None) -> None:
    assert tracing.extract(headers) is None


def test_links_are_distinct_sampled_and_bounded() -> None:
    many = [carried(f"{n:032x}") for n in range(1, 100)]
    assert len(tracing.links(many)) == tracing.LINKS_MAX
    assert len(tracing.links([carried(), carried(), None])) == 1
    assert tracing.links([carried(flags="00")]) == []


def test_a_batch_is_a_span_with_links(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with tracing.batch_span(
        "ads-windows", "ads.events", 3, 500, records=[carried()], provider=provider
    ):
        assert trace.get_current_span().get_span_context().is_valid
    (span,) = exporter.get_finished_spans()
    assert (span.name, span.kind) == ("process ads.events", trace.SpanKind.CONSUMER)
    assert [trace.format_trace_id(link.context.trace_id) for link in span.links] == [TRACE]
    assert span.attributes is not None
    assert span.attributes["messaging.destination.partition.id"] == "3"
    assert span.attributes["messaging.batch.message_count"] == 500
    assert span.attributes["messaging.consumer.group.name"] == "ads-windows"


def test_an_error_is_recorded_and_passes(
    provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    with (
        pytest.raises(RuntimeError, match="store"),
        tracing.batch_span("a", "t", 0, 1, provider=provider),
    ):
        raise RuntimeError("store")
    (span,) = exporter.get_finished_spans()
    assert span.status.status_code is trace.StatusCode.ERROR


def test_nothing_is_recorded_or_read_while_tracing_is_off() -> None:
    def unread() -> tracing.Headers:
        raise AssertionError("headers were read")

    with tracing.batch_span("a", "t", 0, 1, records=(unread() for _ in range(1))) as span:
        assert not span.is_recording()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, []),
        ({"OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "console"}, ["console"]),
        ({"OTEL_TRACES_EXPORTER": "console, otlp"}, ["console", "otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, ["otlp"]),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}, []),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, []),
    ],
)
def test_the_environment_turns_it_on(environ: dict[str, str], expected: list[str]) -> None:
    assert tracing.exporters(environ) == expected


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(ValueError, match="carrier-pigeon"):
        tracing.configure("headrace-worker")


def test_without_environment_configure_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    before = trace.get_tracer_provider()
    assert tracing.configure("headrace-worker") is False
    assert trace.get_tracer_provider() is before
