"""Processes that fold partitions, with the product's `Pump` inside, and what they write to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl
from confluent_kafka import KafkaException
from prometheus_client import CollectorRegistry

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.avro import Decoder, MemorySource
from streams.runtime.dead_letters import Letter
from streams.runtime.derivation.rules import Derivation
from streams.runtime.derivation.target import TargetLog
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.patience import Stopped
from streams.runtime.lane.pump import Pump
from streams.runtime.lane.span import Seat, Span
from streams.runtime.metrics import Metrics
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.sink import SinkRejected, SinkUnavailable, Write
from streams.runtime.topic import Topic
from tests.simulation.broker import Broker, Group, SimulatedProducer
from tests.simulation.world import Clockwork, Process, World

METRICS = Metrics(CollectorRegistry())
"""Shared by all runs: nobody looks at it, and it takes long to make."""


def decoder(topic: Topic, made: dict[str, Decoder] = {}) -> Decoder:  # noqa: B006
    """The decoder of a topic whose registry is in memory, made once."""
    if topic.name not in made:
        schemas = {number: record.schema for number, record in enumerate(topic.records, 1)}
        made[topic.name] = Decoder(topic, MemorySource(schemas))
    return made[topic.name]


class FaultySink:
    """A store at the end of a bad line: refuses, answers late, loses answers, has a full disk."""

    atomic = True

    def __init__(self, projection: Projection, store: MemoryStore, process: Process) -> None:
        self.model = projection.model
        self._sink = MemorySink(projection.model, store)
        self._process = process

    def live_version(self) -> int:
        self._line()
        return self._sink.live_version()

    def prepare(self, version: int) -> None:
        self._sink.prepare(version)

    def load(self, version: int, topic: str, partition: int) -> Position | None:
        self._line()
        return self._sink.load(version, topic, partition)

    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]:
        self._line()
        return self._sink.rows(version, table, partition)

    def write(self, version: int, write: Write) -> None:
        world = self._process.world
        self._line()
        if world.dice(0.01, "disk full"):
            raise SinkRejected("no space left", transient=True)
        if world.dice(0.08, "write on its way for long"):
            self._process.wait(world.between(10, 4_000))
        if world.dice(0.03, "died before the write"):
            self._process.crash()
            self._process.wait(0)
        self._sink.write(version, write)
        if world.dice(0.03, "died after the write"):
            self._process.crash()
            self._process.wait(0)
        if world.dice(0.03, "answer of the store lost"):
            raise SinkUnavailable("the answer was lost")

    def _line(self) -> None:
        world = self._process.world
        if world.dice(0.02, "store does not answer"):
            raise SinkUnavailable("no answer")
        if world.dice(0.1):
            self._process.wait(world.between(0, 5))


class Letters:
    """An outbox that fails sometimes; letters may come twice and must not be missing."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: list[Letter] = []

    def send(self, letters: Sequence[Letter]) -> None:
        if self._world.dice(0.02, "letter lost"):
            raise KafkaException("no answer")
        self.sent += letters
        if self._world.dice(0.02, "acknowledgement of a letter lost"):
            raise KafkaException("no answer")


class GroupOffsets:
    """What a derivation committed."""

    def __init__(self) -> None:
        self.committed: dict[int, Position] = {}

    def check(self) -> None:
        """Topics are as they should be."""

    def load(self, partition: int) -> Position | None:
        return self.committed.get(partition)


class FoldingProcess(Process):
    """One process of an agent; a restart remembers nothing."""

    def __init__(
        self,
        world: World,
        name: str,
        projection: Projection,
        broker: Broker,
        group: Group,
        letters: Letters,
        target: MemoryStore | tuple[Derivation, GroupOffsets],
    ) -> None:
        super().__init__(world, name)
        self.projection = projection
        self.broker = broker
        self.group = group
        self.letters = letters
        self.target = target
        self.seats: dict[int, Seat] = {}
        self.reads: dict[int, int] = {}
        group.join(self, projection.topic.partitions)
        self.start()

    def start(self) -> None:
        self.seats, self.reads = {}, {}
        topic = self.projection.topic
        self.pump = Pump(
            self.projection,
            self._sink(),
            decoder(topic),
            self.letters,
            METRICS.agent(self.projection.name, system="sim", topic=topic.name, store="memory"),
            bounds=self._bounds,
            restart=self._restart,
            commit=self._commit,
            stopping=Clockwork(self),  # type: ignore[arg-type]
        )

    def _sink(self) -> Any:
        if isinstance(self.target, MemoryStore):
            return FaultySink(self.projection, self.target, self)
        derivation, offsets = self.target
        return TargetLog(derivation, lambda: SimulatedProducer(self.broker, self), offsets)

    def act(self) -> None:
        for partition in range(self.projection.topic.partitions):
            mine = self.group.owner(partition) is self
            seat = self.seats.get(partition)
            # A member that has not polled yet still believes in what it had.
            if not mine and (seat is None or self.world.dice(0.5)):
                if seat is not None:
                    seat.revoked = True
                    del self.seats[partition]
                continue
            if seat is None:
                self._sit(partition)
            else:
                self._fold(seat, partition)

    def _sit(self, partition: int) -> None:
        seat = Seat(self.projection.topic.name, partition)
        self.reads[partition] = self.pump.locate(seat)
        self.seats[partition] = seat

    def _fold(self, seat: Seat, partition: int) -> None:
        world, at = self.world, self.reads[partition]
        stop = at + world.random.choice((1, 2, 5, 40))
        messages = self.broker.messages(self.projection.topic.name, partition, at, stop)
        if not messages:
            if not world.dice(0.1):
                return
            span = Span(seat, idle=True)
        else:
            span = Span(seat, messages, begins=at)
            self.reads[partition] = span.next_offset
        self.pump.process(span)
        if seat.revoked and self.seats.get(partition) is seat:
            del self.seats[partition]

    def _restart(self, seat: Seat, fresh: Seat, offset: int) -> None:
        self.world.seen["started over"] += 1
        if self.seats.get(seat.partition) is seat:
            self.seats[seat.partition] = fresh
            self.reads[seat.partition] = offset

    def _commit(self, seat: Seat, position: Position) -> None:
        if isinstance(self.target, tuple) and not self.world.dice(0.1, "commit lost"):
            self.target[1].committed[seat.partition] = position

    def _bounds(self, seat: Seat) -> LogBounds:
        log = self.broker.log(seat.topic, seat.partition)
        return LogBounds("id", 0, len(log), self.projection.topic.partitions)


__all__ = ["FoldingProcess", "GroupOffsets", "Letters", "Stopped"]
