"""Each batch of a lane is a span that links to the commands and events it was made of."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from sinks.drivers.memory import MemorySink
from streams.runtime import tracing
from streams.runtime.lane.bounds import LogMismatch
from streams.runtime.lane.span import Seat, Span
from tests.runtime.lane.bed import Bed, Keep, message, span, value

pytestmark = pytest.mark.usefixtures("either_reader", "either_way")


class Traced:
    """A lane that traces into memory."""

    def __init__(self, **more: Any) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = provider.get_tracer("test")
        self.bed = Bed(tracing=provider, **more)

    def process(self, seat: Seat, *messages: Message) -> None:
        self.bed.carry(span(seat, *messages))

    @property
    def batches(self) -> list[ReadableSpan]:
        """The spans of batches that have ended."""
        spans = self._exporter.get_finished_spans()
        return [one for one in spans if one.kind is trace.SpanKind.CONSUMER]


def sent(offset: int, trace_id: int, *, sampled: bool = True, **more: Any) -> Message:
    """A record that was written in a trace."""
    context = f"00-{trace_id:032x}-{offset + 1:016x}-{sampled:02x}"
    return message(offset, headers=[("ce_id", b"x"), ("traceparent", context.encode())], **more)


def linked(one: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in one.links]


def test_a_batch_is_a_span_that_links_to_what_it_was_made_of() -> None:
    lane = Traced()
    seat = lane.bed.seat()
    with lane.tracer.start_as_current_span("POST /v1/commands") as command:
        headers = [(name, value or b"") for name, value in tracing.inject()]
    records = (sent(0, 7), message(1), sent(2, 7), sent(3, 8, sampled=False))
    lane.process(seat, *records, message(4, headers=headers))
    lane.process(seat, message(5))
    first, second = lane.batches
    context = command.get_span_context()
    assert linked(first) == [(7, 1), (context.trace_id, context.span_id)]
    assert (first.name, first.parent) == ("process test.clicks", None)
    assert first.attributes is not None
    assert first.attributes["messaging.batch.message_count"] == 5
    assert first.attributes["messaging.consumer.group.name"] == "test-keep"
    assert first.attributes["messaging.destination.partition.id"] == "0"
    assert (linked(second), second.status.status_code) == ([], trace.StatusCode.UNSET)
    assert lane.bed.kept() == list(range(6))


def test_links_and_the_records_looked_at_for_them_are_bounded() -> None:
    lane = Traced()
    seat = lane.bed.seat()
    many = tracing.LOOKED_MAX + 10
    lane.process(seat, *(sent(n, n + 1) for n in range(many)))
    rare = (message(many + n) for n in range(tracing.LOOKED_MAX))
    lane.process(seat, *rare, sent(many + tracing.LOOKED_MAX, 9))
    full, bare = lane.batches
    assert linked(full) == [(n + 1, n + 1) for n in range(tracing.LINKS_MAX)]
    assert linked(bare) == []


def test_what_ends_a_batch_is_on_its_span() -> None:
    lane = Traced(fold=Keep({"bad": LogMismatch("another topic")}))
    with pytest.raises(LogMismatch):
        lane.process(lane.bed.seat(), message(0, value("x", "bad")))
    (one,) = lane.batches
    assert one.status.status_code is trace.StatusCode.ERROR
    assert [event.name for event in one.events] == ["exception"]


def test_a_refused_write_is_on_its_span_and_the_next_batch_is_another() -> None:
    lane = Traced()
    seat = lane.bed.seat()
    other = lane.bed.another(MemorySink(lane.bed.projection.model, lane.bed.store))
    theirs = Seat("test.clicks", 0)
    other.locate(theirs)
    other.process(span(theirs, message(0)))
    lane.process(seat, message(0))
    ((_, fresh, offset),) = lane.bed.restarts
    lane.process(fresh, message(offset))
    codes = [one.status.status_code for one in lane.batches]
    assert codes == [trace.StatusCode.UNSET, trace.StatusCode.ERROR, trace.StatusCode.UNSET]


def test_silence_is_no_batch() -> None:
    lane = Traced()
    seat = lane.bed.seat()
    lane.bed.pump.process(Span(seat, idle=True))
    assert lane.batches == []


def test_while_nobody_traces_no_header_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: Any) -> Any:
        raise AssertionError("a header was read")
        yield

    monkeypatch.setattr(Span, "some_headers", read)
    bed = Bed()
    bed.pump.process(span(bed.seat(), sent(0, 1)))
    assert bed.kept() == [0]
    lane = Traced()
    with pytest.raises(AssertionError, match="a header was read"):
        lane.process(lane.bed.seat(), sent(0, 1))
