"""Testing the rules of a decider without a broker: the real owner over a log in memory.

    harness = DeciderHarness(DECIDER)
    reply = harness.send(TransferRequested(...), idempotency_key="k1")
    harness.advance(900_000)                 # timers fire
    assert harness.replay_digest() == harness.digest()

Rows go through Avro on their way, as on the real log. Time begins at `START_MS` and stands still
unless told to `advance`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import msgspec

from streams.runtime.avro import MemorySource
from streams.runtime.decider.codec import Codec, Unreadable, with_control_records
from streams.runtime.decider.filter import Verdict, claimed, judge
from streams.runtime.decider.folded import CLOCK, Folded, empty
from streams.runtime.decider.judge import Incoming, incoming_of
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.ports import Last, Phase
from streams.runtime.decider.records import OwnershipClaimed
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.rules import Decider, Envelope, Event
from streams.runtime.decider.state import Image, PartitionState
from streams.runtime.decider.wire import (
    Cause,
    Decision,
    Headers,
    carried,
    decision_header,
    envelope_headers,
    is_timer,
)
from streams.runtime.position import FilterState
from streams.runtime.topic import Topic

START_MS = 1_700_000_000_000
REPLY_TO = "harness"


class LogRecord(msgspec.Struct, frozen=True):
    """A record of a log in memory."""

    key: bytes
    value: bytes | None
    headers: Headers
    time_ms: int


@dataclass
class Slice:
    """Records `[first, …)` of a log in memory, as an owner reads them."""

    first: int
    records: Sequence[LogRecord]

    def __post_init__(self) -> None:
        self.offsets: Sequence[int] = range(self.first, self.first + len(self.records))
        self.values: Sequence[bytes | None] = [one.value for one in self.records]
        self.headers: Sequence[Headers | None] = [one.headers for one in self.records]
        self.decisions: Sequence[bytes | None] = list(map(decision_header, self.headers))

    def append_ms(self, at: int) -> int:
        return self.records[at].time_ms


@dataclass
class MemoryPorts:
    """An owner's world in memory: what it sends and asks is kept for whoever plays the world."""

    random: random.Random
    now_ms: int = START_MS
    sent: list[tuple[str, LogRecord]] = field(default_factory=list)
    """Records on their way, with the nonce they were sent under."""
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    snapshots: list[tuple[Image, FilterState, Last]] = field(default_factory=list)
    commands_from: int | None = None

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def nonce(self) -> str:
        return f"{self.random.getrandbits(128):032x}"

    def spread(self) -> float:
        return self.random.random()

    def append(self, nonce: str, key: bytes, value: bytes, headers: Headers) -> None:
        self.sent.append((nonce, LogRecord(key, value, headers, self.now_ms)))

    def ask_commands(self, offset: int) -> None:
        self.commands_from = offset

    def answer(self, reply_to: str, answer: Answer) -> None:
        self.answers.append((reply_to, answer))

    def snapshot(self, image: Image, filter_state: FilterState, last: Last) -> None:
        self.snapshots.append((image, filter_state, last))


def memory_codec(topic: Topic) -> Codec:
    """A codec whose registry is in memory."""
    ids = {record.fullname: number for number, record in enumerate(topic.records, 1)}
    schemas = {ids[record.fullname]: record.schema for record in topic.records}
    return Codec(topic, MemorySource(schemas), ids)


def incoming(codec: Codec, offset: int, record: LogRecord) -> Incoming:
    """A command of a log in memory, as the shell makes it of a Kafka record."""
    one = codec.decode([record.value])[0]
    place = f"{codec.topic.name}/0", offset
    return incoming_of(one, record.headers, record.key, record.time_ms, place)


class DeciderHarness:
    """One partition of a decider, run by its real owner over logs in memory."""

    def __init__(self, decider: Decider, *, seed: int = 0) -> None:
        self.decider = decider
        self.commands: list[LogRecord] = []
        self.log: list[LogRecord] = []
        self.replies: list[Answer] = []
        """All answers given, in order; a repeat among them has `replay`."""
        self._numbers = count(1)
        self._command_codec = memory_codec(decider.commands)
        self._codec = memory_codec(with_control_records(decider.events))
        self._ports = MemoryPorts(random.Random(seed))  # noqa: S311 -- a test, no secret
        self.owner = self._start()

    def _start(self) -> Owner:
        folded = self._fresh()
        owner = Owner(
            *(self.decider, 0, folded, self._codec, self._ports),
            writer="harness",
            commands_topic_id="commands",
        )
        owner.read(Slice(0, self.log))
        owner.assign()
        self.owner = owner
        self._settle()
        return owner

    def _fresh(self) -> Folded:
        ttl_ms = self.decider.idempotency_ttl_ms
        return Folded(self.decider.rules, empty(self.decider.rules), key_ttl_ms=ttl_ms)

    # -- what a test does -----------------------------------------------------------------------

    def send(
        self,
        row: Any,
        *,
        key: str | None = None,
        idempotency_key: str = "",
        fingerprint: str | None = None,
        subject: str = "",
    ) -> Answer:
        """Send a command and return the answer to it. `key` is the value of the topic's key field
        by default; `fingerprint` is one of the row.
        """
        envelope = Envelope(
            correlation_id=f"c{next(self._numbers)}",
            reply_to=REPLY_TO,
            idempotency_key=idempotency_key,
            fingerprint=repr(row) if fingerprint is None else fingerprint,
            subject=subject,
        )
        named = str(getattr(row, self.decider.commands.key)) if key is None else key
        _, value = self._command_codec.encode(row)
        return self.send_raw(value, key=named, envelope=envelope)

    def send_raw(self, value: bytes | None, *, key: str = "", envelope: Envelope) -> Answer:
        """Send any bytes as a command and return the answer to it."""
        headers = envelope_headers(envelope)
        record = LogRecord(key.encode(), value, headers, self._ports.now_ms)
        self.commands.append(record)
        self._settle()
        found = [one for one in self.replies if one.correlation_id == envelope.correlation_id]
        if not found:
            raise AssertionError(f"no answer to {envelope.correlation_id}")
        return found[-1]

    def advance(self, ms: int) -> None:
        """Let time pass; timers that come due meanwhile fire in their order."""
        end_ms = self._ports.now_ms + ms
        while (due := self.owner.next_timer_ms) is not None and due <= end_ms:
            self._ports.now_ms = max(self._ports.now_ms, due)
            before = len(self.log)
            self._settle()
            if len(self.log) == before:
                raise AssertionError(f"a timer due at {due} does not fire")
        self._ports.now_ms = end_ms
        self._settle()

    def crash(self) -> None:
        """The process dies; another one takes over from the log."""
        self._ports.sent.clear()
        self._start()

    # -- what came of it ------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self._ports.now_ms

    @property
    def state(self) -> PartitionState:
        """The state after all events."""
        return self.owner.folded.state

    @property
    def events(self) -> list[Any]:
        """The rows of the accepted events, rejections included, in order."""
        return [event.row for event, _ in self.accepted()]

    def accepted(self) -> Iterator[tuple[Event, Envelope | None]]:
        """The accepted events by the reader rule, row by row; a timer's have no envelope."""
        state = FilterState()
        for offset, one in enumerate(self.log):
            found = self._codec.decode([one.value])[0]
            if not isinstance(found, Unreadable) and isinstance(found[1], OwnershipClaimed):
                state = claimed(state, offset, found[1].nonce)
                continue
            raw, timer = decision_header(one.headers), is_timer(one.headers)
            state, verdict = judge(state, Decision.unpack(raw) if raw else None, timer=timer)
            if verdict is Verdict.ACCEPTED and not isinstance(found, Unreadable):
                event = Event(found[0], found[1], Cause.of(one.headers).time_ms, offset)
                yield event, None if timer else carried(one.headers, "")[0]

    def digest(self) -> str:
        """Digest of the state that the owner decides on."""
        return self.owner.folded.image().digest()

    def replay_digest(self) -> str:
        """Digest of the state that the accepted events fold to from scratch."""
        owner = Owner(
            *(self.decider, 0, self._fresh(), self._codec, MemoryPorts(random.Random(0))),  # noqa: S311
            writer="replay",
            commands_topic_id="commands",
        )
        owner.read(Slice(0, self.log))
        return owner.folded.image().digest()

    # -- the world ------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Run until nothing is on its way and nothing waits."""
        ports, owner = self._ports, self.owner
        while True:
            sent, ports.sent = ports.sent, []
            first = len(self.log)
            self.log += [record for _, record in sent]
            owner.read(Slice(first, self.log[first:]))
            if owner.phase is Phase.OWNING:
                start = owner.folded.filter.source_offset + 1
                todo = self.commands[start:]
                owner.decide(
                    [incoming(self._command_codec, start + n, one) for n, one in enumerate(todo)]
                )
            owner.tick(confirmed_ms=ports.now_ms, idle=True)
            if not ports.sent:
                break
        self.replies += [told for _, told in ports.answers]
        ports.answers.clear()


__all__ = ["CLOCK", "START_MS", "DeciderHarness", "LogRecord", "MemoryPorts", "Slice"]
