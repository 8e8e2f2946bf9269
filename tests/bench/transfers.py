"""What `bench decide` decides: transfers between the accounts of one partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from connectors.encode import Encoder
from schemas.apply import apply
from schemas.registry import schema_ids
from streams.runtime import kafka
from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.decider.rules import (
    Command,
    Decider,
    Envelope,
    Event,
    Rejected,
    Reply,
    State,
)
from streams.runtime.decider.wire import envelope_headers
from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType, Topic
from tests.bench.store import drop_topics

ACCOUNTS = 1_000
OVERDRAFT = 1_000_000


@dataclass(frozen=True, slots=True)
class Transfer:
    """Move an amount."""

    debit: str
    credit: str
    amount: int


@dataclass(frozen=True, slots=True)
class Transferred:
    """It was moved."""

    debit: str
    credit: str
    amount: int


def _record(row: type) -> RecordType:
    fields = [
        {"name": "debit", "type": "string"},
        {"name": "credit", "type": "string"},
        {"name": "amount", "type": "long"},
    ]
    avsc = {"type": "record", "name": row.__name__, "namespace": "headrace.bench", "fields": fields}
    dtypes = {"debit": pl.String, "credit": pl.String, "amount": pl.Int64}
    return RecordType(f"headrace.bench.{row.__name__}", json.dumps(avsc), dtypes, row)


TRANSFER, TRANSFERRED = _record(Transfer), _record(Transferred)


class Transfers:
    """No account goes below its overdraft."""

    version = 1
    tables: ClassVar = {"balances": int}

    def decide(self, state: State, command: Command) -> Any:
        row = command.row
        if (state["balances"].get(row.debit) or 0) - row.amount < -OVERDRAFT:
            raise Rejected("insufficient_funds", f"{row.debit} has less than {row.amount}")
        return Transferred(row.debit, row.credit, row.amount)

    def evolve(self, state: State, event: Event) -> None:
        row, balances = event.row, state["balances"]
        balances[row.debit] = (balances.get(row.debit) or 0) - row.amount
        balances[row.credit] = (balances.get(row.credit) or 0) + row.amount

    def expire(self, state: State, timer: Any) -> Any:
        raise LookupError(timer.name)

    def reply(self, event: Event) -> Reply:
        return Reply(201, {"amount": event.row.amount})


def chain(accounts: int, more: int) -> Iterator[Transfer]:
    """Transfers from each account to the next one, round and round: all have been used then."""
    for n in range(accounts + more):
        yield Transfer(f"account-{n % accounts}", f"account-{(n + 1) % accounts}", 1 + n % 100)


def commands(records: int) -> list[Transfer]:
    """The same transfers every time."""
    return [
        Transfer(f"account-{n * 7919 % ACCOUNTS}", f"account-{n * 104729 % ACCOUNTS}", 1 + n % 100)
        for n in range(records)
    ]


def decider(records: int, **more: Any) -> Decider:
    """The decider of a run of that size, on topics of its own."""
    name = f"bench.decide-{records}"
    common: dict[str, Any] = {
        "key": "debit",
        "event_time": None,
        "partitions": 1,
        "doc": "A bench.",
    }
    asked = Topic(f"{name}.commands", (TRANSFER,), **common, owner="bench")
    told = Topic(
        *(f"{name}.events", (TRANSFERRED, *CONTROL_RECORDS)),
        **common,
        owner="bench",
        decides=asked.name,
    )
    return Decider(name, asked, told, Transfers(), **more)


def fill(
    settings: Settings, one: Decider, rows: Iterable[Transfer], keyed_every: int | None = None
) -> None:
    """Make both topics anew; the command topic full, the event topic empty. Every so many commands
    have an idempotency key.
    """
    drop_topics(settings, [one.commands, one.events])
    apply(settings, [one.commands, one.events])
    write = Encoder(one.commands, schema_ids(one.commands, settings.registry)).writer("Transfer")
    producer = kafka.producer(settings.kafka)
    for n, row in enumerate(rows):
        key, value = write(row)
        keyed = f"key-{n}" if keyed_every and not n % keyed_every else ""
        headers = envelope_headers(Envelope(f"{n:032x}", "", keyed, "f" * 32 if keyed else ""))
        while True:
            try:
                producer.produce(one.commands.name, value, key, headers=headers)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
