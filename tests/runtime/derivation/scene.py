"""A derivation without a broker: a source in memory, a target log that loses and delays records,
and readers that apply the rule.
"""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import fastavro
import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.derivation.filter import Verdict, accept
from streams.runtime.derivation.fold import as_projection
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.target import TargetLog
from streams.runtime.derivation.wire import columns, source_header
from streams.runtime.kafka import partition_of
from streams.runtime.position import NO_WATERMARK, FilterState, Position
from streams.runtime.sink import SinkUnavailable
from streams.runtime.step import Memory, advance, flush, restore
from streams.runtime.topic import RecordType, Topic
from streams.runtime.watermark import stamp


@dataclass(frozen=True)
class Sent:
    sender: str
    receivers: int
    at: int


@dataclass(frozen=True)
class Got:
    receiver: str
    text: str


def record(row: type, fields: Mapping[str, tuple[Any, Any]]) -> RecordType:
    name = f"test.{row.__name__}"
    avro = [{"name": field, "type": kind} for field, (kind, _) in fields.items()]
    schema = {"type": "record", "name": name, "fields": avro}
    return RecordType(name, json.dumps(schema), {k: dtype for k, (_, dtype) in fields.items()}, row)


AT = ({"type": "long", "logicalType": "timestamp-millis"}, pl.Datetime("ms", "UTC"))
SENT = record(Sent, {"sender": ("string", pl.String), "receivers": ("long", pl.Int64), "at": AT})
GOT = record(Got, {"receiver": ("string", pl.String), "text": ("string", pl.String)})

SOURCE = Topic("test.sent", (SENT,), "sender", "at", 2, "tests", "Messages.", out_of_orderness_ms=1)
TARGET = Topic(
    "test.got", (GOT,), "receiver", "at", 3, "tests", "By receiver.", derived_from=("test.sent",)
)


def fan_out(batch: Batch) -> dict[str, pl.DataFrame]:
    """A message to n receivers is n records; to none, none."""
    rows = batch.frame.with_columns(pl.int_ranges(0, "receivers").alias("n"))
    rows = rows.explode("n", empty_as_null=False)
    text = pl.format("{}/{}", OFFSET, "n")
    receiver = pl.format("r{}", (pl.col(OFFSET) * 7 + pl.col("n")) % 11)
    return {GOT.fullname: rows.select(receiver.alias("receiver"), text.alias("text"), OFFSET)}


DERIVATION = Derivation("test-fan-out", SOURCE, TARGET, fan_out)


def encode(fullname: str, frame: pl.DataFrame) -> Iterator[tuple[bytes, bytes]]:
    for row in frame.to_dicts():
        out = io.BytesIO()
        out.write(struct.pack(">bI", 0, 1))
        fastavro.schemaless_writer(out, GOT.schema, row)
        yield row[TARGET.key].encode(), out.getvalue()


def batch(partition: int, first: int, rows: Sequence[Sent], before_ms: int) -> Batch:
    """A batch of the source."""
    frame = pl.DataFrame(
        {
            "sender": [row.sender for row in rows],
            "receivers": [row.receivers for row in rows],
            "at": [row.at for row in rows],
            OFFSET: range(first, first + len(rows)),
        },
        schema={**SENT.dtypes, OFFSET: pl.Int64},
    )
    frames, after = stamp({SENT.fullname: frame}, "at", before_ms, SOURCE.out_of_orderness_ms)
    assert WATERMARK in frames[SENT.fullname].columns
    return Batch(SOURCE, partition, first, first + len(rows), frames, after)


Record = tuple[bytes, bytes | None, bytes]
"""Header, key and value."""
Fault = Callable[[], str]
"""What becomes of the next record: sent, lost, or late (reported as failed, delivered later)."""


@dataclass
class Log:
    """The target topic."""

    partitions: list[list[tuple[bytes, bytes | None]]] = field(
        default_factory=lambda: [[] for _ in range(TARGET.partitions)]
    )
    late: list[tuple[int, tuple[bytes, bytes | None]]] = field(default_factory=list)
    failures: int = 0

    def land(self, n: int) -> None:
        """A late record gets through."""
        if self.late:
            partition, sent = self.late.pop(n % len(self.late))
            self.partitions[partition].append(sent)

    def accepted(self, partition: int) -> list[bytes | None]:
        """The values that readers of a partition take."""
        headers = columns(header for header, _ in self.partitions[partition])
        found = accept(FilterState(), headers, topics=1, before_ms=NO_WATERMARK, bound_ms=0)
        values = [value for _, value in self.partitions[partition]]
        return [values[row] for row in found.rows(Verdict.ACCEPTED).tolist()]

    def refused(self) -> int:
        found = [
            accept(
                FilterState(), columns(h for h, _ in log), topics=1, before_ms=0, bound_ms=0
            ).codes
            for log in self.partitions
        ]
        return sum(int(((one == Verdict.REPEAT) | (one == Verdict.HOLE)).sum()) for one in found)


@dataclass
class FakeProducer:
    """Holds records until `flush`, then does with each what `fault` says, in order."""

    log: Log
    fault: Fault
    queue: list[Any] = field(default_factory=list)

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, report: Any, *, headers: Any
    ) -> None:
        assert topic == TARGET.name
        self.queue.append((partition, (source_header(headers), value), report))

    def poll(self, timeout: float) -> int:
        return 0

    def flush(self, timeout: float) -> int:
        for partition, sent, report in self.queue:
            match self.fault():
                case "sent":
                    self.log.partitions[partition].append(sent)
                    continue
                case "late":
                    self.log.late.append((partition, sent))
            self.log.failures += 1
            report("failed", None)
        self.queue = []
        return 0

    def purge(self) -> None:
        self.queue = []


@dataclass
class Committed:
    """Positions in memory."""

    stored: dict[int, Position] = field(default_factory=dict)

    def check(self) -> None: ...

    def load(self, partition: int) -> Position | None:
        return self.stored.get(partition)


class Task:
    """One process's work on one source partition."""

    def __init__(
        self, log: Log, committed: Committed, partition: int, rows: Sequence[Sent], fault: Fault,
        derivation: Derivation = DERIVATION,
    ) -> None:  # fmt: skip
        self.projection = as_projection(derivation, encode)
        self.committed = committed
        self.partition = partition
        self.rows = rows
        self.target = TargetLog(derivation, lambda: FakeProducer(log, fault), committed)
        self.memory: Memory = restore(
            self.projection, "topic-1", self.target.load(1, SOURCE.name, partition)
        )
        self.pending: Position | None = None

    def step(self, most: int) -> bool:
        """Derive and send the next rows; False at the end. Raises `SinkUnavailable`."""
        first = self.memory.now.offset
        rows = self.rows[first : first + most]
        if not rows:
            return False
        step = advance(
            self.projection,
            self.memory,
            batch(self.partition, first, rows, self.memory.now.watermark_ms),
        )
        assert step.write is not None
        self.target.write(1, step.write)
        self.memory, self.pending = step.memory, step.write.position
        return True

    def idle(self) -> None:
        write = flush(self.projection, self.memory, SOURCE.name, self.partition)
        if write is not None:
            self.target.write(1, write)

    def commit(self) -> None:
        """What the reader's thread does now and then."""
        if self.pending is not None:
            self.committed.stored[self.partition] = self.pending


def expected(partition: int, rows: Sequence[Sent]) -> list[list[bytes]]:
    """f(source): values by target partition, of one source partition."""
    found: list[list[bytes]] = [[] for _ in range(TARGET.partitions)]
    derived = fan_out(batch(partition, 0, rows, NO_WATERMARK))[GOT.fullname]
    for key, value in encode(GOT.fullname, derived.drop(OFFSET)):
        found[partition_of(key.decode(), TARGET.partitions)].append(value)
    return found


FAULTS = ("sent", "sent", "sent", "sent", "lost", "late")


def well() -> str:
    """Every record gets through."""
    return "sent"


def disturb(rows: Sequence[Sent], chance: random.Random, steps: int) -> Log:
    """Derive `rows` through lost and late records, crashes and zombies, then in calm to the end.

    Raises `AssertionError` once readers have not taken a prefix of what the source leads to, and
    unless they have taken all of it in the end.
    """
    log, committed, wanted = Log(), Committed(), expected(0, rows)

    def faulty() -> str:
        return chance.choice(FAULTS)

    tasks = [Task(log, committed, 0, rows, faulty)]
    for _ in range(steps):
        task = chance.choice(tasks)  # an old one is a zombie
        try:
            match chance.choice(("step", "step", "commit", "crash", "idle", "land")):
                case "step":
                    task.step(chance.randint(1, 5))
                case "commit":
                    task.commit()
                case "crash":
                    tasks.append(Task(log, committed, 0, rows, faulty))
                case "idle":
                    task.idle()
                case "land":
                    log.land(chance.randint(0, 9))
        except SinkUnavailable:
            pass  # the same task tries again
        for partition, all_of_it in enumerate(wanted):
            got = log.accepted(partition)
            if got != all_of_it[: len(got)]:
                raise AssertionError(f"partition {partition}: {got}, not of {all_of_it}")
    calm = Task(log, committed, 0, rows, well)
    while calm.step(5):
        calm.commit()
    while log.late:
        log.land(0)
    if [log.accepted(partition) for partition in range(len(wanted))] != wanted:
        raise AssertionError("not all of it")
    return log
