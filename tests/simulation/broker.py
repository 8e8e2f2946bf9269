"""Logs, senders and groups of a simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from confluent_kafka import Message

from streams.runtime.decider.testing import LogRecord
from tests.simulation.world import Process, World

Told = Callable[[str | None], None]
"""Told how a send ended: None, or why it failed (or may have)."""


class Broker:
    """Partitions as lists of records."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.logs: dict[tuple[str, int], list[LogRecord]] = defaultdict(list)
        self._messages: dict[tuple[str, int], list[Message]] = defaultdict(list)

    def log(self, topic: str, partition: int) -> list[LogRecord]:
        return self.logs[topic, partition]

    def append(self, topic: str, partition: int, record: LogRecord) -> int:
        """Append a record; the log dates it. Its offset."""
        log = self.logs[topic, partition]
        log.append(LogRecord(record.key, record.value, record.headers, self.world.now_ms))
        return len(log) - 1

    def messages(self, topic: str, partition: int, first: int, stop: int) -> list[Message]:
        """Records as a client sees them."""
        made, log = self._messages[topic, partition], self.logs[topic, partition]
        for offset in range(len(made), len(log)):
            one = log[offset]
            made.append(
                Message(
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    key=one.key,
                    value=one.value,
                    headers=list(one.headers),
                    timestamp=(2, one.time_ms),
                )
            )
        return made[first:stop]


class Line:
    """The way of one client's records to one partition: in order, unless something goes wrong.

    What goes wrong: a record is lost and those behind it are not; its acknowledgement is lost; it
    is told to have failed and still arrives, much later than what was sent after it. `ordered`
    lines (idempotent producers) never let an old record arrive behind a newer one.
    """

    def __init__(self, broker: Broker, topic: str, partition: int, *, ordered: bool) -> None:
        self._broker = broker
        self._place = (topic, partition)
        self._ordered = ordered
        self._free_ms = 0

    def send(self, record: LogRecord, told: Told, faults: float = 0.01) -> None:
        world = self._broker.world
        arrives_ms = max(world.now_ms + world.between(0.5, 6), self._free_ms + 0.001)

        def arrive(answer: str | None) -> None:
            self._broker.append(*self._place, record)
            world.later(world.between(0.2, 3), lambda: told(answer))

        if world.dice(faults, "record lost"):
            world.later(world.between(100, 3_000), lambda: told("timed out"))
        elif world.dice(faults, "acknowledgement lost"):
            self._free_ms = arrives_ms
            world.later(arrives_ms - world.now_ms, lambda: arrive("timed out"))
        elif not self._ordered and world.dice(faults, "record late"):
            world.later(world.between(1, 200), lambda: told("timed out"))
            arrives_ms = world.now_ms + world.between(100, 4_000)
            world.later(arrives_ms - world.now_ms, lambda: arrive("timed out"))
        else:
            self._free_ms = arrives_ms
            world.later(arrives_ms - world.now_ms, lambda: arrive(None))


class SimulatedProducer:
    """What a derivation asks of `confluent_kafka.Producer`."""

    def __init__(self, broker: Broker, process: Process) -> None:
        self._broker = broker
        self._process = process
        self._lines: dict[tuple[str, int], Line] = {}
        self._open = 0
        self._purged = False

    def produce(
        self, topic: str, value: Any, key: Any, partition: int, report: Any, headers: Any = ()
    ) -> None:
        place = (topic, partition)
        line = self._lines.setdefault(place, Line(self._broker, *place, ordered=True))
        self._open += 1

        def told(error: str | None) -> None:
            self._open -= 1
            if not self._purged:
                report(error, None)

        line.send(LogRecord(key, value, list(headers), 0), told)

    def poll(self, _: float) -> int:
        self._process.wait(1)
        return 0

    def flush(self, timeout_s: float) -> int:
        """Wait for all answers, or until a time is over."""
        ends_ms = self._broker.world.now_ms + 1_000 * timeout_s
        while self._open and self._broker.world.now_ms < ends_ms:
            self._process.wait(2)
        return self._open

    def purge(self) -> None:
        self._purged = True


class Group:
    """Who owns which partition. A member learns of it when it polls, and not before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._owners: dict[int, Process] = {}
        self._members: list[Process] = []

    def join(self, member: Process, partitions: int) -> None:
        self._members.append(member)
        for partition in range(partitions):
            self._owners.setdefault(partition, member)

    def owner(self, partition: int) -> Process:
        return self._owners[partition]

    def watch(self) -> None:
        """Now and then: give partitions of members that stand still to others, or just so."""
        world = self._world
        world.later(world.between(200, 1_500), self.watch)
        for partition, owner in self._owners.items():
            silent = owner.paused_until_ms > world.now_ms
            if silent or world.dice(0.05, "rebalance"):
                others = [
                    one
                    for one in self._members
                    if one is not owner and one.paused_until_ms <= world.now_ms
                ]
                if others:
                    self._owners[partition] = world.random.choice(others)
                    world.seen["partition moved"] += 1
