"""A world for real owners: a log that loses, repeats and reorders, processes that pause and die.

After every step the log itself is judged: it is folded by the reader rule row by row, and every
accepted event must answer the next command (or a timer) and must have been decided on exactly the
state that the events before it add up to (each carries the digest it was decided on).
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace

from streams.runtime.decider.filter import BrokenChain
from streams.runtime.decider.folded import Folded, FoldFailed, empty
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Last, Phase
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Envelope
from streams.runtime.decider.snapshot import Identity
from streams.runtime.decider.state import Image
from streams.runtime.decider.testing import (
    LogRecord,
    MemoryPorts,
    Slice,
    incoming,
    memory_codec,
)
from streams.runtime.decider.wire import (
    envelope_headers,
)
from streams.runtime.position import FilterState
from tests.runtime.decider.canon import Canon
from tests.runtime.decider.counting import COMMANDS, DECIDER, EVENTS, Count, Counting, Violation


class Halted(Exception):
    """A process stopped loudly."""


@dataclass
class WorldPorts(MemoryPorts):
    """Also stops where the commands are gone (A10)."""

    world: World | None = None

    def ask_commands(self, offset: int) -> None:
        if self.world is not None and offset < self.world.commands_start:
            raise Halted
        super().ask_commands(offset)


@dataclass
class Process:
    owner: Owner
    ports: WorldPorts
    at: int = 0
    """The next command to hand over."""


@dataclass(frozen=True)
class Stored:
    """A snapshot as kept."""

    image: Image
    filter: FilterState
    last: Identity


class World:
    """Everything there is: two logs, records on their way, processes, snapshots, a clock."""

    def __init__(self, seed: int, processes: int = 3) -> None:
        self.random = random.Random(seed)
        self.now_ms = 1_700_000_000_000
        self.commands: list[LogRecord] = []
        self.commands_start = 0
        self.log: list[LogRecord] = []
        self.flying: dict[str, list[LogRecord]] = {}
        self.lost: list[str] = []
        self.processes: list[Process | None] = [None] * processes
        self.snapshots: list[Stored] = []
        self.codec = memory_codec(EVENTS)
        self.command_codec = memory_codec(COMMANDS)
        self.canon = self._canon()
        self.told: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()

    def _canon(self) -> Canon:
        return Canon(self.fresh(), self.codec)

    @staticmethod
    def fresh() -> Folded:
        ttl_ms = DECIDER.idempotency_ttl_ms
        return Folded(DECIDER.rules, empty(DECIDER.rules), key_ttl_ms=ttl_ms)

    # -- what may happen ------------------------------------------------------------------------

    def command(self, name: str, arm: int, key: str = "") -> None:
        """Somebody asks for something."""
        n = len(self.commands)
        envelope = Envelope(f"c{n}", "sender", key, name if key else "")
        value = self.command_codec.encode(Count(name, arm))[1]
        headers = envelope_headers(envelope)
        self.commands.append(LogRecord(name.encode(), value, headers, self.now_ms))

    def start(self, slot: int, *, snapshot: bool | None = None) -> None:
        """A process starts in a slot; whoever was there has crashed. It may use a snapshot, or
        does if there is one, or does not.
        """
        usable = [one for one in self.snapshots if self._usable(one)]
        folded = self.fresh()
        self.seen["start"] += 1
        if snapshot is None:
            snapshot = self.random.random() < 0.7
        if usable and snapshot:
            one = self.random.choice(usable)
            ttl_ms = DECIDER.idempotency_ttl_ms
            folded = Folded(
                DECIDER.rules,
                one.image,
                key_ttl_ms=ttl_ms,
                filter_state=one.filter,
                next_offset=one.last.offset + 1,
            )
            self.seen["snapshot used"] += 1
        ports = WorldPorts(self.random, self.now_ms, world=self)
        name = f"process {self.seen['start']}"
        decider = replace(DECIDER, rules=Counting(name))
        owner = Owner(*(decider, 0, folded, self.codec, ports), writer=name, commands_topic_id="c")
        self.processes[slot] = Process(owner, ports)
        owner.assign()
        self._collect(slot)

    def _usable(self, one: Stored) -> bool:
        at = one.last.offset
        return at < len(self.log) and self._identity(at) == one.last

    def _identity(self, offset: int) -> Identity:
        record = self.log[offset]
        return Identity.of(Last(offset, record.value, record.headers))

    def read(self, slot: int, count: int) -> None:
        """A process reads so many records."""
        process = self.processes[slot]
        if process is None:
            return
        first = process.owner.folded.next_offset
        with self._alive(slot):
            process.owner.read(Slice(first, self.log[first : first + count]))
        self._collect(slot)

    def decide(self, slot: int, count: int) -> None:
        """A process is handed so many commands."""
        process = self.processes[slot]
        if process is None:
            return
        if process.ports.commands_from is not None:
            process.at, process.ports.commands_from = process.ports.commands_from, None
        some = list(enumerate(self.commands))[process.at : process.at + count]
        todo = [incoming(self.command_codec, at, one) for at, one in some]
        process.at += process.owner.decide(todo)
        self._collect(slot)

    def tick(self, slot: int, *, confirmed: bool = True) -> None:
        """A process looks at the clock."""
        process = self.processes[slot]
        if process is not None:
            before = process.owner.phase
            confirmed_ms = self.now_ms if confirmed else 0
            process.owner.tick(confirmed_ms=confirmed_ms, idle=process.at >= len(self.commands))
            self.seen["re-claim"] += (before, process.owner.phase) == (
                Phase.WAITING,
                Phase.CLAIMING,
            )
            self._collect(slot)

    def wait(self, ms: int) -> None:
        """Time passes for everybody."""
        self.now_ms += ms
        for process in self.processes:
            if process is not None:
                process.ports.now_ms = self.now_ms

    def save(self, slot: int) -> None:
        """A process snapshots what it has."""
        process = self.processes[slot]
        if process is not None:
            process.owner.save()
            self._collect(slot)

    def append(self, nonce: str, at: int = 0, *, keep: bool = False) -> None:
        """A record on its way lands: the first, or a later one (a reorder); `keep`: its repeat is
        still on its way.
        """
        queue = self.flying[nonce]
        record = queue[at]
        self.seen["reordered"] += at > 0
        self.seen["repeated"] += keep
        self.log.append(replace_time(record, self.now_ms))
        self.canon.take(len(self.log) - 1, self.log[-1])
        if not keep:
            self._gone(nonce, at)

    def lose(self, nonce: str, at: int = 0, *, reported: bool = True) -> None:
        """A record on its way never lands; its sender is told, or has to notice."""
        self._gone(nonce, at)
        self.seen["lost"] += 1
        for slot, process in enumerate(self.processes):
            if process is not None and reported:
                process.owner.failed(nonce)
                self._collect(slot)

    def _gone(self, nonce: str, at: int) -> None:
        del self.flying[nonce][at]
        if not self.flying[nonce]:
            del self.flying[nonce]

    def truncate(self) -> None:
        """The log's last record vanishes; who has read it crashes (it is told by the broker)."""
        if not self.log:
            return
        self.log.pop()
        self.seen["truncated"] += 1
        self.canon = self._canon()
        for offset, record in enumerate(self.log):
            self.canon.take(offset, record)
        for slot, process in enumerate(self.processes):
            if process is not None and process.owner.folded.next_offset > len(self.log):
                self.processes[slot] = None

    def retain(self) -> None:
        """The oldest command is deleted."""
        if self.commands_start < len(self.commands):
            self.commands_start += 1

    # -- judging --------------------------------------------------------------------------------

    def _alive(self, slot: int) -> _Alive:
        return _Alive(self, slot)

    def _collect(self, slot: int) -> None:
        """Take what a process sent, told and saved, and judge it."""
        process = self.processes[slot]
        if process is None:
            return
        ports = process.ports
        for nonce, record in ports.sent:
            self.flying.setdefault(nonce, []).append(record)
        ports.sent.clear()
        for _, answer in ports.answers:
            self._check_answer(answer)
        ports.answers.clear()
        for image, filter_state, last in ports.snapshots:
            self._check(image, last.offset + 1, "a snapshot")
            self.snapshots.append(Stored(image, filter_state, Identity.of(last)))
        ports.snapshots.clear()
        self.check_reader(process.owner)

    def _check_answer(self, answer: Answer) -> None:
        self.seen["answer"] += 1
        self.told[answer.correlation_id] += 1
        found = self.canon.accepted.get(answer.offset)
        if found is None:
            raise Violation(f"a reply about offset {answer.offset}, which readers do not accept")
        if not answer.replay and found[1] != answer.correlation_id:
            raise Violation(f"a reply to {answer.correlation_id} tells the event of {found[1]}")
        self.seen["replay"] += answer.replay

    def check_reader(self, owner: Owner) -> None:
        """What an owner has read back is what the log says at that offset."""
        flying = [one.steps for one in reversed(owner._flying)]
        self._check(owner.folded.image(flying), owner.folded.next_offset, "a reader")

    def _check(self, image: Image, offset: int, who: str) -> None:
        if self.canon.digests and image.digest() != self.canon.digests[offset]:
            raise Violation(f"{who} at offset {offset} has another state than the log")

    # -- calm -----------------------------------------------------------------------------------

    def calm(self, old: str) -> None:
        """One process stays, nothing fails any more; records on their way land early, late or
        never (`old`). All commands must be decided, soon.
        """
        for slot in range(1, len(self.processes)):
            self.processes[slot] = None
        if self.processes[0] is None:
            self.start(0)
        mine = self.processes[0].owner._nonce if self.processes[0] else ""
        before = [nonce for nonce in self.flying if nonce != mine]
        if old == "never":
            self.flying = {nonce: q for nonce, q in self.flying.items() if nonce == mine}
        for turn in range(400):
            for nonce in list(self.flying):
                if old == "late" and nonce in before and turn % 5:
                    continue
                while nonce in self.flying:
                    self.append(nonce)
            if self.processes[0] is None:
                self.start(0)
            self.read(0, 3)
            self.decide(0, 5)
            self.tick(0)
            self.wait(50)
            if self.canon.sources == len(self.commands) - 1 and not self.flying:
                return
            if self.commands_start > self.canon.sources + 1:
                return  # an undecided command was deleted: to stand still is right
        raise Violation(f"stuck: {self.canon.sources + 1} of {len(self.commands)} commands decided")


class _Alive:
    """What stops a process loudly ends it and not the test."""

    def __init__(self, world: World, slot: int) -> None:
        self._world = world
        self._slot = slot

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> bool:
        if kind is Halted:
            self._world.processes[self._slot] = None
            self._world.seen["halted"] += 1
            return True
        if kind in (BrokenChain, FoldFailed):
            raise Violation(f"a reader stopped: {error}")
        return False


def replace_time(record: LogRecord, time_ms: int) -> LogRecord:
    return LogRecord(record.key, record.value, record.headers, time_ms)
