"""One run: clients, processes, faults, then peace, then the verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sinks.drivers.memory import MemoryStore
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.testing import LogRecord, memory_codec
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.kafka import partition_of
from tests.runtime.clicks import Clicked
from tests.runtime.decider.bank import Deposit, Hold, Misbehave
from tests.simulation import models
from tests.simulation.broker import Broker, Group
from tests.simulation.deciding import Archive, DeciderProcess, codecs
from tests.simulation.folding import FoldingProcess, GroupOffsets, Letters
from tests.simulation.world import EPOCH_MS, Process, World

FAULTS_MS = 12_000
PEACE_MS = 120_000
CLIENTS = 3
_CLICK_CODEC = memory_codec(models.CLICKS.topic)


@dataclass
class Town:
    """Everything of one run."""

    seed: int
    world: World = field(init=False)
    answers: list[Answer] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = world = World(self.seed)
        self.broker = Broker(world)
        self.archive = Archive(world)
        self.store = MemoryStore()
        self.offsets = GroupOffsets()
        self.letters = {one.name: Letters(world) for one in (*models.PROJECTIONS, models.DERIVING)}
        self._build()
        self.numbers = 0

    def _build(self) -> None:
        world, broker = self.world, self.broker
        group = self._group()
        for n in range(2):
            self.processes.append(
                DeciderProcess(
                    world, f"decider-{n}", models.DECIDER, broker, group, self.archive, self.answers
                )
            )
        for one in (*models.PROJECTIONS, models.DERIVING):
            group = self._group()
            target: Any = self.store
            if one is models.DERIVING:
                target = (models.DERIVATION, self.offsets)
            self.processes += [
                FoldingProcess(
                    *(world, f"{one.name}-{n}", one, broker, group, self.letters[one.name], target)
                )
                for n in range(2)
            ]
        for n in range(CLIENTS):
            world.later(world.between(0, 100), lambda n=n: self._client(n))
        world.later(500, self._trouble)

    def _group(self) -> Group:
        group = Group(self.world)
        self.world.later(300, group.watch)
        return group

    # -- clients --------------------------------------------------------------------------------

    def _client(self, n: int) -> None:
        """A few requests; a client that hears nothing sends the same again."""
        if not self.world.faulty:
            return
        self.world.later(self.world.between(5, 250), lambda: self._client(n))
        if self.world.dice(0.5):
            self._click()
            return
        self.numbers += 1
        random = self.world.random
        account = f"a{random.randrange(8)}"
        row: Any
        match random.randrange(10):
            case 0:
                row = Misbehave(account, random.choice(("raise", "wrong", "foreign", "evolve")))
            case 1 | 2 | 3:
                row = Hold(account, random.randrange(1, 60), f"h{self.numbers}")
            case _:
                row = Deposit(account, random.randrange(-3, 50))
        key = f"k{self.numbers}" if random.random() < 0.6 else ""
        self._command(row, key)
        if key and random.random() < 0.5:
            again = row if random.random() < 0.8 else Deposit(account, 1_000)
            self.world.later(self.world.between(1, 3_000), lambda: self._command(again, key))

    def _command(self, row: Any, key: str) -> None:
        self.numbers += 1
        envelope = Envelope(f"c{self.numbers}", "town", key, repr(row), "someone")
        value = codecs(models.DECIDER)[1].encode(row)[1]
        if self.world.dice(0.01, "unreadable command"):
            value = value[:-1]
        topic = models.DECIDER.commands
        record = LogRecord(row.account.encode(), value, envelope_headers(envelope), 0)
        self.broker.append(topic.name, partition_of(row.account, topic.partitions), record)

    def _click(self) -> None:
        self.numbers += 1
        random, now_ms = self.world.random, self.world.now_ms
        at = now_ms - random.choice((0, 0, 100, 150, 900, 6_000))
        row = Clicked(f"i{random.randrange(self.numbers)}", f"c{random.randrange(3)}", at, 1)
        value = _CLICK_CODEC.encode(row)[1]
        if self.world.dice(0.01, "unreadable click"):
            value += b"?"
        topic = models.CLICKS.topic
        self.broker.append(topic.name, 0, LogRecord(row.campaign.encode(), value, [], 0))

    # -- trouble --------------------------------------------------------------------------------

    def _trouble(self) -> None:
        world = self.world
        if not world.faulty:
            return
        world.later(world.between(100, 900), self._trouble)
        victim = world.random.choice(self.processes)
        if world.dice(0.5, "process killed"):
            victim.crash()
        elif world.dice(0.6, "process paused"):
            victim.pause(world.between(100, 4_000))

    # -- the run --------------------------------------------------------------------------------

    def run(self) -> None:
        """Faults, then peace until all is folded. Raises `AssertionError` when that never comes."""
        world = self.world
        world.run(EPOCH_MS + FAULTS_MS)
        world.faulty = False
        ends_ms = world.now_ms + PEACE_MS
        while not self.settled():
            assert world.now_ms < ends_ms, f"not settled after {PEACE_MS} ms of peace"
            world.run(world.now_ms + 500)

    def settled(self) -> bool:
        """Whether every command is answered and every log folded to its end."""
        from tests.simulation.oracle import answered  # the oracle reads what the town has

        if not answered(self):
            return False
        for projection in models.PROJECTIONS:
            for partition in range(projection.topic.partitions):
                log = self.broker.log(projection.topic.name, partition)
                stored = self.position(projection.name, projection.topic.name, partition)
                if log and (stored is None or stored.next_offset < len(log)):
                    return False
        for partition in range(models.EVENTS.partitions):
            log = self.broker.log(models.EVENTS.name, partition)
            committed = self.offsets.committed.get(partition)
            if log and (committed is None or committed.next_offset < len(log)):
                return False
        return True

    def position(self, model: str, topic: str, partition: int) -> Any:
        from sinks.drivers.memory import MemorySink

        (projection,) = (one for one in models.PROJECTIONS if one.name == model)
        sink = MemorySink(projection.model, self.store)
        sink.prepare(1)
        return sink.load(1, topic, partition)
