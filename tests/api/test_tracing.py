"""A request is a span, in its caller's trace where it names one; what it writes carries that on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from api.services import Services
from api.traces import Traced
from connectors.encode import Encoder
from connectors.producer import LogProducer
from schemas.ads.events import EVENTS
from streams.runtime import tracing
from tests.api.conftest import CLICK, client_of

ENCODERS = {EVENTS.name: Encoder(EVENTS, {r.fullname: 1 for r in EVENTS.records})}
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Place:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        return EVENTS.name

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Log:
    """A client of Kafka that keeps the headers of what it delivers at once."""

    def __init__(self) -> None:
        self.headers: list[Any] = []
        self._reports: list[Callable[[Any, Any], None]] = []

    def produce(
        self, topic: str, *, key: bytes, value: bytes, headers: Any, on_delivery: Any
    ) -> None:
        self.headers.append(headers)
        self._reports.append(on_delivery)

    def poll(self, timeout: float) -> int:
        while self._reports:
            self._reports.pop(0)(None, Place(0))
        return 0

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def purge(self) -> None:
        """Nothing is kept back."""


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def log(app: FastAPI, services: Services) -> AsyncIterator[Log]:
    """The log that the application writes to."""
    client = Log()
    async with LogProducer(client, ENCODERS) as producer:
        app.state.services = replace(services, producer=producer)
        yield client


@pytest.fixture
def traced(app: FastAPI, exporter: InMemorySpanExporter) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app.add_middleware(Traced, provider=provider)


def only(exporter: InMemorySpanExporter) -> ReadableSpan:
    (span,) = exporter.get_finished_spans()
    return span


@pytest.mark.usefixtures("traced")
async def test_what_a_request_writes_names_its_span(
    client: httpx.AsyncClient, log: Log, exporter: InMemorySpanExporter
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    answer = await client.post("/v1/ads/events", json=CLICK, headers=headers)
    assert answer.status_code == 202
    span = only(exporter)
    assert (span.name, span.kind) == ("POST /v1/ads/events", trace.SpanKind.SERVER)
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 202
    assert span.parent is not None
    assert trace.format_trace_id(span.context.trace_id) == TRACE
    assert trace.format_span_id(span.parent.span_id) == SPAN
    (written,) = log.headers
    context = tracing.extract(written)
    assert context is not None
    assert (context.trace_id, context.span_id) == (span.context.trace_id, span.context.span_id)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("named", [None, "00-0-0-01", f"00-{'0' * 32}-{SPAN}-01"])
async def test_without_a_callers_trace_a_request_begins_one(
    client: httpx.AsyncClient, log: Log, exporter: InMemorySpanExporter, named: str | None
) -> None:
    headers = {} if named is None else {"traceparent": named}
    await client.post("/v1/ads/events", json=CLICK, headers=headers)
    span = only(exporter)
    assert span.parent is None
    context = tracing.extract(log.headers[0])
    assert context is not None
    assert context.trace_id == span.context.trace_id


@pytest.mark.usefixtures("traced")
async def test_spans_are_named_by_route_and_never_by_path(
    app: FastAPI, exporter: InMemorySpanExporter, log: Log
) -> None:
    async with client_of(app) as stranger:
        await stranger.request("BREW", "/v1/ads/events/secret")
        await stranger.post("/v1/ads/events", json=CLICK)
    names = [span.name for span in exporter.get_finished_spans()]
    assert names == ["other none", "POST none"]
    assert log.headers == []


async def test_while_nobody_traces_nothing_is_added(client: httpx.AsyncClient, log: Log) -> None:
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    assert (await client.post("/v1/ads/events", json=CLICK, headers=headers)).status_code == 202
    assert log.headers == [None]
