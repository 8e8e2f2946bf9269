"""A lane without a broker: records by hand, a memory store, and the pump between them."""

from __future__ import annotations

import io
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
from confluent_kafka import KafkaException, Message
from opentelemetry.trace import TracerProvider
from prometheus_client import CollectorRegistry

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.avro import MemorySource
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.dead_letters import Letter
from streams.runtime.decoding import decoder
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.journal import Journal
from streams.runtime.lane.overlap import Overlap
from streams.runtime.lane.pump import Pump
from streams.runtime.lane.span import Seat, Span
from streams.runtime.metrics import Metrics
from streams.runtime.native.columns import Columns
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel, Table, Upsert
from streams.runtime.topic import Topic
from tests.runtime.clicks import CLICKED, topic

SCHEMA = fastavro.parse_schema(CLICKED.schema)
OVERLAPPED = False
"""Whether spans are folded while the write of the one before is out; see `conftest`."""
IN_COLUMNS = False
"""Whether records are held as the column reader holds them; see `conftest`."""
TABLE = Table("clicks", {"offset": pl.Int64}, {"click_id": pl.String})


def value(click_id: str, campaign: str = "c", at: int = 1_000) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, 1))
    row = {"click_id": click_id, "campaign": campaign, "at": at, "cost": 1}
    fastavro.schemaless_writer(out, SCHEMA, row)
    return out.getvalue()


def message(offset: int, content: bytes | None = None, **more: Any) -> Message:
    """A record of partition 0; the id of a good one is its offset."""
    given = {"key": b"k", "timestamp": (2, 2_000), "headers": [], **more}
    content = value(str(offset)) if content is None else content
    return Message(topic="test.clicks", partition=0, offset=offset, value=content, **given)


@dataclass
class Keep:
    """Keeps every click by offset; fails as it is told, by campaign."""

    errors: Mapping[str, BaseException] = field(default_factory=dict)
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        rows = batch.frame
        self.seen.append(tuple(rows[OFFSET].to_list()))
        for campaign in rows["campaign"].to_list():
            if campaign in self.errors:
                raise self.errors[campaign]
        kept = rows.rename({OFFSET: "offset"}).select("offset", "click_id")
        changes = [Upsert(TABLE, kept)] if kept.height else []
        return state, Outcome(changes, {Fate.APPLIED: rows.height})

    def provisional(self, state: None) -> list[Any]:
        return []


@dataclass
class Letterbox:
    """An outbox that fails `failures` times before it works."""

    failures: int = 0
    letters: list[Letter] = field(default_factory=list)

    def send(self, letters: Sequence[Letter]) -> None:
        if self.failures:
            self.failures -= 1
            raise KafkaException("down")
        self.letters += letters


class Bed:
    """A pump with everything around it in reach."""

    def __init__(
        self,
        *,
        fold: Any = None,
        journal: Path | None = None,
        of: Topic | None = None,
        table: Table = TABLE,
        columns: Mapping[str, tuple[str, ...]] | None = None,
        tracing: TracerProvider | None = None,
    ) -> None:
        self.fold = fold or Keep()
        self.store = MemoryStore()
        model = ReadModel("test-keep", (table,))
        self.projection = Projection(
            "test-keep", of or topic(), self.fold, model, "memory", columns=columns
        )
        self.sink = MemorySink(model, self.store)
        self.schemas = MemorySource(
            {n: one.schema for n, one in enumerate(self.projection.topic.records, 1)}
        )
        self.outbox = Letterbox()
        self.tracing = tracing
        self.stopping = threading.Event()
        self.restarts: list[tuple[Seat, Seat, int]] = []
        self.commits: list[int] = []
        self.bounds = LogBounds("id-1", 0, 1_000_000, partitions=topic().partitions)
        self.journal = Journal(journal) if journal else None
        self.pump = self.another(self.sink)

    def another(self, sink: Any, bounds: Callable[[Seat], LogBounds] | None = None) -> Pump:
        self.registry = CollectorRegistry()
        metrics = Metrics(self.registry)
        return Pump(
            self.projection,
            sink,
            decoder(self.projection.topic, self.schemas, self.projection.reads),
            self.outbox,
            metrics.agent("test-keep", system="test", topic="test.clicks", store="memory"),
            bounds=bounds or (lambda _: self.bounds),
            restart=lambda *restart: self.restarts.append(restart),
            commit=lambda _, position: self.commits.append(position.next_offset),
            stopping=self.stopping,
            journal=self.journal,
            tracing=self.tracing,
        )

    def carry(self, span: Span) -> None:
        """Fold and store a span, as the lane's pump does alone, or with its writer beside it."""
        if not OVERLAPPED:
            self.pump.process(span)
            return
        with closing(Overlap(self.pump, lambda: None, lambda _: None)) as overlap:
            overlap.take(span).result()
            overlap.wait()

    def seat(self) -> Seat:
        seat = Seat("test.clicks", 0)
        self.pump.locate(seat)
        return seat

    def kept(self) -> list[int]:
        """Offsets in the store."""
        frames = [frame["offset"] for frame in self.sink.rows(1, "clicks")]
        return sorted(pl.concat(frames).to_list()) if frames else []

    def stale(self) -> dict[str, float]:
        """Records that the reader rule refused, by reason, as metrics tell."""
        return {
            sample.labels["reason"]: sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == "headrace_stale_rows_total"
        }

    @property
    def position(self) -> Position:
        """The stored position."""
        position = self.sink.load(1, "test.clicks", 0)
        assert position is not None
        return position

    @property
    def next_offset(self) -> int:
        position = self.sink.load(1, "test.clicks", 0)
        return position.next_offset if position else 0


def content(one: Message) -> tuple[Any, ...]:
    """All that a record holds and where it is."""
    place = one.topic(), one.partition(), one.offset()
    return *place, one.key(), one.value(), one.headers(), one.timestamp()


def held(messages: Sequence[Message]) -> Sequence[Message]:
    """Records as the reader under test holds them."""
    return Columns.of(messages) if IN_COLUMNS and messages else list(messages)


def span(seat: Seat, *messages: Message, begins: int | None = None) -> Span:
    return Span(seat, held(messages), begins=begins)
