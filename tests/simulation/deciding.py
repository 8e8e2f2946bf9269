"""Processes that own partitions of a decider, with the product's `Owner` inside."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from streams.runtime.decider.codec import Codec
from streams.runtime.decider.folded import Folded, empty
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Last, Phase
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Decider
from streams.runtime.decider.state import Image
from streams.runtime.decider.testing import LogRecord, Slice, incoming, memory_codec
from streams.runtime.decider.wire import Headers
from streams.runtime.position import FilterState
from tests.simulation.broker import Broker, Group, Line
from tests.simulation.world import Process, World


@dataclass(frozen=True)
class Kept:
    """A snapshot, and what it claims to be."""

    image: Image
    filter: FilterState
    last: Last


class Archive:
    """Snapshots of all partitions. Some are lost, some are very old when they arrive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.kept: dict[int, list[Kept]] = {}

    def put(self, partition: int, one: Kept) -> None:
        world = self._world
        if world.dice(0.2, "snapshot lost"):
            return
        world.later(world.between(1, 2_000), lambda: self._arrive(partition, one))

    def newest(self, partition: int, log: list[LogRecord]) -> Kept | None:
        """The one that reaches furthest and ends with a record that the log holds (A11)."""
        usable = [
            one
            for one in self.kept.get(partition, [])
            if one.last.offset < len(log) and log[one.last.offset].value == one.last.value
        ]
        return max(usable, key=lambda one: one.last.offset, default=None)

    def _arrive(self, partition: int, one: Kept) -> None:
        self.kept.setdefault(partition, []).append(one)
        self._world.seen["snapshot"] += 1


class DeciderProcess(Process):
    """One process that may own some partitions; a restart remembers nothing."""

    def __init__(
        self,
        world: World,
        name: str,
        decider: Decider,
        broker: Broker,
        group: Group,
        archive: Archive,
        answers: list[Answer],
    ) -> None:
        super().__init__(world, name)
        self.decider = decider
        self.broker = broker
        self.group = group
        self.archive = archive
        self.answers = answers
        self.owners: dict[int, Ownership] = {}
        group.join(self, decider.commands.partitions)

    def start(self) -> None:
        self.owners = {}

    def act(self) -> None:
        for partition in range(self.decider.commands.partitions):
            mine = self.group.owner(partition) is self
            owned = self.owners.get(partition)
            if owned is None and mine:
                self.owners[partition] = owned = Ownership(self, partition)
                owned.owner.assign()
            elif owned is not None and not mine:
                if owned.owner.assigned:
                    owned.owner.release()
                if self.world.dice(0.3):
                    del self.owners[partition]
                    continue
            elif owned is not None and not owned.owner.assigned:
                owned.owner.assign()
            if owned is not None:
                owned.turn(mine=mine)


class Ownership:
    """An owner and its ports to the simulated world."""

    def __init__(self, process: DeciderProcess, partition: int) -> None:
        self.process = process
        self.world = process.world
        self.partition = partition
        self.decider = process.decider
        self.log = process.broker.log(self.decider.events.name, partition)
        self.commands = process.broker.log(self.decider.commands.name, partition)
        self.codec, self.command_codec = codecs(self.decider)
        self._line = Line(process.broker, self.decider.events.name, partition, ordered=False)
        self._life = process.life
        self._commands_from: int | None = None
        self._confirmed_ms = 0
        self.owner = Owner(
            *(self.decider, partition, self._recovered(), self.codec, self),
            writer=process.name,
            commands_topic_id="commands",
        )

    def _recovered(self) -> Folded:
        rules, ttl_ms = self.decider.rules, self.decider.idempotency_ttl_ms
        found = self.process.archive.newest(self.partition, self.log)
        if found is None:
            return Folded(rules, empty(rules), key_ttl_ms=ttl_ms)
        self.world.seen["recovered from a snapshot"] += 1
        image = Image(
            {name: dict(rows) for name, rows in found.image.tables.items()},
            dict(found.image.timers),
        )
        return Folded(
            rules,
            image,
            key_ttl_ms=ttl_ms,
            filter_state=found.filter,
            next_offset=found.last.offset + 1,
        )

    def turn(self, *, mine: bool) -> None:
        owner, world = self.owner, self.world
        if mine:
            self._confirmed_ms = world.now_ms
        first = owner.folded.next_offset
        stop = first + world.random.randrange(1, 20)
        owner.read(Slice(first, self.log[first:stop]))
        todo: list[LogRecord] = []
        if owner.phase is Phase.OWNING and self._commands_from is not None:
            at = self._commands_from
            todo = self.commands[at : at + world.random.randrange(1, 12)]
            done = owner.decide(
                [incoming(self.command_codec, at + n, one) for n, one in enumerate(todo)]
            )
            if owner.phase is Phase.OWNING:
                self._commands_from = at + done
        owner.tick(confirmed_ms=self._confirmed_ms, idle=not todo)
        if world.dice(0.02):
            owner.save()

    # -- ports ----------------------------------------------------------------------------------

    def monotonic_ms(self) -> int:
        return self.world.now_ms

    def wall_ms(self) -> int:
        return self.world.now_ms

    def nonce(self) -> str:
        return f"{self.world.random.getrandbits(128):032x}"

    def spread(self) -> float:
        return self.world.random.random()

    def append(self, nonce: str, key: bytes, value: bytes, headers: Headers) -> None:
        def told(error: str | None) -> None:
            if error is not None and self.process.life == self._life:
                self.owner.failed(nonce, error)

        self._line.send(LogRecord(key, value, headers, 0), told)

    def ask_commands(self, offset: int) -> None:
        self._commands_from = offset

    def answer(self, reply_to: str, answer: Answer) -> None:
        if not self.world.dice(0.1, "answer lost"):
            self.process.answers.append(answer)

    def snapshot(self, image: Image, filter_state: FilterState, last: Last) -> None:
        self.process.archive.put(self.partition, Kept(image, filter_state, last))


def codecs(decider: Decider, made: dict[str, tuple[Codec, Codec]] = {}) -> tuple[Codec, Codec]:  # noqa: B006
    """Codecs of events and commands, made once: they have no state."""
    if decider.name not in made:
        made[decider.name] = (memory_codec(decider.events), memory_codec(decider.commands))
    return made[decider.name]


def framed(schema_id: int, body: bytes) -> bytes:
    """A value in the wire format."""
    return struct.pack(">bI", 0, schema_id) + body


__all__ = ["Any", "Archive", "DeciderProcess", "Kept", "codecs", "framed"]
