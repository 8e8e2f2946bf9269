"""The whole system in memory, with a clock by hand: API commands in, calls of receivers out.

Decider, fan-out, reactor, read model and reader are the real ones; the log is lists, the store is
memory and receivers are functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl
import polars.selectors as cs

from connectors.outbound import Answer
from connectors.producer import RecordMetadata
from connectors.replies import Waiters
from schemas.webhooks import events
from sinks.drivers.memory import MemorySink, MemoryStore
from sinks.webhooks import WEBHOOKS
from sinks.webhooks.reader import WebhooksReader
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.decider import replies as verdicts
from streams.runtime.decider import wire
from streams.runtime.decider.testing import DeciderHarness
from streams.runtime.kafka import partition_of
from streams.runtime.reactor.testing import Harness as ReactorHarness
from streams.runtime.testing import Harness
from streams.webhooks import DECIDER, DELIVER, SYSTEM
from streams.webhooks.delivering import Delivering
from streams.webhooks.fanout import fan_out
from tests.rows import MemoryRows

TENANT = "t"
PARTITION = partition_of(TENANT, events.EVENTS.partitions)
ROWS = {record.row: record.fullname for record in events.EVENTS.records}
DELIVERIES = {record.fullname: record.row for record in events.DELIVERIES.records}
(PROJECTION,) = SYSTEM.projections

Hook = Callable[[Mapping[str, str], bytes], int]
"""A receiver: headers and body to a status."""


def batch(rows: Sequence[Any], first: int, stop: int) -> Batch:
    """Events `[first, stop)` of a log as a reader gives them."""
    frames: dict[str, pl.DataFrame] = {}
    for record in events.EVENTS.records:
        own = [(n, r) for n, r in enumerate(rows[first:stop], first) if type(r) is record.row]
        if own:
            columns = {name: [getattr(r, name) for _, r in own] for name in record.columns}
            frames[record.fullname] = pl.DataFrame(
                columns, schema=dict(record.dtypes), strict=False
            ).with_columns(
                pl.Series(OFFSET, [n for n, _ in own], dtype=pl.Int64),
                pl.lit(0, pl.Int64).alias(WATERMARK),
            )
    return Batch(events.EVENTS, 0, first, stop, frames)


class Heard(Waiters):
    """Verdicts of the decider in this process."""

    address = "world"

    async def kept(self, correlation_id: str) -> verdicts.Answer | None:
        return None


@dataclass
class World:
    """One tenant's partition of everything. It is a producer, too: what routes send is decided at
    once; calls are made when told to `settle` or to `advance`.
    """

    decider: DeciderHarness = field(default_factory=lambda: DeciderHarness(DECIDER))
    hooks: dict[str, Hook] = field(default_factory=dict)
    """URL → receiver."""
    got: list[tuple[str, str]] = field(default_factory=list)
    """(URL, webhook-id) of every call, in order."""
    replies: Heard = field(default_factory=Heard)

    def __post_init__(self) -> None:
        self._sink = MemorySink(WEBHOOKS, MemoryStore())
        self._read = Harness(PROJECTION, self._sink, partition=PARTITION)
        self.reader = WebhooksReader(MemoryRows(self._sink))
        handler = Delivering(self.reader, self, lambda: self.now_ms, lambda _: asyncio.sleep(0))
        self.reactor = ReactorHarness(DELIVER, handler, self.decider.now_ms)
        self._folded = self._derived = self._told = 0
        self._known: tuple[int, list[Any]] = (-1, [])

    @property
    def now_ms(self) -> int:
        """The clock of everything."""
        return self.reactor.now_ms

    @property
    def events(self) -> list[Any]:
        """Accepted events."""
        if self._known[0] != len(self.decider.log):
            rows = [row for row in self.decider.events if type(row) in ROWS]
            self._known = len(self.decider.log), rows
        return self._known[1]

    def ids(self, url: str) -> list[str]:
        """webhook-ids that a receiver got, in order, repeats included."""
        return [id_ for at, id_ in self.got if at == url]

    async def request(
        self, method: str, url: str, *, content: bytes, headers: Mapping[str, str]
    ) -> Answer:
        """`Posts`: a call of a receiver."""
        assert method == "POST"
        self.got.append((url, headers["webhook-id"]))
        return Answer(self.hooks[url](headers, content), {}, b"")

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Any = ()
    ) -> RecordMetadata:
        """`Producer`: a command, decided at once."""
        assert topic == events.COMMANDS.name
        assert type(row).__name__ == record_name.rpartition(".")[2]
        envelope = msgspec.structs.replace(wire.envelope_of(headers, "?"), reply_to="world")
        _, value = self.decider._command_codec.encode(row)
        answer = self.decider.send_raw(value, key=row.tenant_id, envelope=envelope)
        self.fold()
        self.replies.heard(msgspec.structs.replace(answer, partition=PARTITION))
        return RecordMetadata(topic, PARTITION, len(self.decider.commands))

    async def send_many(self, *_: Any) -> list[RecordMetadata]:
        raise AssertionError("commands go one by one")

    def fold(self) -> None:
        """Bring the read model up to the log."""
        rows = self.events
        if self._folded < len(rows):
            self._read.send(*rows[self._folded :])
            self._read.run()
            self._folded = len(rows)

    async def settle(self) -> None:
        """Deliver, report and decide until nothing moves."""
        while True:
            rows = self.events
            pending = derived(rows, self._derived) if self._derived < len(rows) else []
            self._derived = len(rows)
            await self.reactor.feed(*pending)
            told = self.reactor.outcomes[self._told :]
            if not pending and not told:
                return
            self._told += len(told)
            for row in told:
                self.decider.send(row)
            self.fold()

    async def advance(self, ms: int, step_ms: int = 60_000) -> None:
        """Let time pass: retries, timers and what follows from them."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            step = min(step_ms, until_ms - self.now_ms)
            await self.reactor.advance(step)
            self.decider.advance(step)
            self.fold()
            await self.settle()


def derived(rows: Sequence[Any], first: int) -> list[Any]:
    """The deliveries of the events from `first` on, in their order."""
    found = fan_out(batch(rows, first, len(rows)))
    made = [
        (row.pop(OFFSET), DELIVERIES[name](**row))
        for name, frame in found.items()
        for row in frame.with_columns(cs.datetime().dt.epoch("ms")).to_dicts()
    ]
    return [row for _, row in sorted(made, key=lambda one: one[0])]
