"""A small decider for tests: accounts, transfers, and holds that expire by a timer."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import polars as pl

from streams.runtime.decider.records import CONTROL_RECORDS
from streams.runtime.decider.rules import (
    Command,
    Decider,
    Event,
    Rejected,
    Reply,
    State,
    Timer,
)
from streams.runtime.topic import RecordType, Topic

_AVRO = {int: ("long", pl.Int64), str: ("string", pl.String)}
HOLD_MS = 10_000


@dataclass(frozen=True, slots=True)
class Deposit:
    account: str
    amount: int


@dataclass(frozen=True, slots=True)
class Hold:
    account: str
    amount: int
    hold: str


@dataclass(frozen=True, slots=True)
class Misbehave:
    account: str
    how: str


@dataclass(frozen=True, slots=True)
class Deposited:
    account: str
    amount: int
    balance: int


@dataclass(frozen=True, slots=True)
class Held:
    account: str
    amount: int
    hold: str


@dataclass(frozen=True, slots=True)
class HoldExpired:
    account: str
    hold: str


@dataclass(frozen=True, slots=True)
class Noted:
    account: str
    text: str


def record(row: type, types: dict[str, type]) -> RecordType:
    fields = [{"name": name, "type": _AVRO[kind][0]} for name, kind in types.items()]
    avsc = {"type": "record", "name": row.__name__, "namespace": "headrace.bank", "fields": fields}
    dtypes = {name: _AVRO[kind][1] for name, kind in types.items()}
    return RecordType(f"headrace.bank.{row.__name__}", json.dumps(avsc), dtypes, row)


A, N = {"account": str}, {"amount": int}
COMMANDS = (
    record(Deposit, A | N),
    record(Hold, A | N | {"hold": str}),
    record(Misbehave, A | {"how": str}),
)
EVENTS = (
    record(Deposited, A | N | {"balance": int}),
    record(Held, A | N | {"hold": str}),
    record(HoldExpired, A | {"hold": str}),
    record(Noted, A | {"text": str}),
)


class Account(msgspec.Struct, frozen=True, gc=False):
    balance: int
    held: int = 0


class Hold_(msgspec.Struct, frozen=True, gc=False):  # noqa: N801
    account: str
    amount: int


class Bank:
    version = 1
    tables: ClassVar = {"accounts": Account, "holds": Hold_}

    def decide(self, state: State, command: Command) -> Any:
        match command.row:
            case Deposit(account, amount):
                if amount <= 0:
                    raise Rejected("bad_amount", "amount must be positive", status=422)
                before = state["accounts"].get(account)
                return Deposited(account, amount, (before.balance if before else 0) + amount)
            case Hold(account, amount, hold):
                found = state["accounts"].get(account)
                if found is None or found.balance - found.held < amount:
                    raise Rejected("insufficient_funds", f"{account} has less than {amount}")
                return Held(account, amount, hold)
            case Misbehave(account, how):
                return self._misbehave(state, account, how)

    def _misbehave(self, state: State, account: str, how: str) -> Any:
        match how:
            case "raise":
                raise ZeroDivisionError("oops")
            case "write":
                state["accounts"][account] = Account(10**9)
            case "large":
                return Noted(account, "x" * 2_000_000)
            case "wrong":
                return Noted(account, 5)  # type: ignore[arg-type]
            case "foreign":
                return object()
            case "evolve":
                return Noted(account, "evolve")
            case "surrogate":
                raise Rejected("odd", "\ud800")
            case "exit":
                os._exit(3)
        return Noted(account, how)

    def expire(self, state: State, timer: Timer) -> Any:
        hold = state["holds"][timer.name]
        if hold.account == "broken":
            raise ZeroDivisionError("oops")
        return HoldExpired(hold.account, timer.name)

    def evolve(self, state: State, event: Event) -> None:
        accounts, holds = state["accounts"], state["holds"]
        match event.row:
            case Deposited(account, amount, balance):
                before = accounts.get(account)
                assert balance == (before.balance if before else 0) + amount
                accounts[account] = Account(balance, before.held if before else 0)
            case Held(account, amount, hold):
                before = accounts[account]
                accounts[account] = Account(before.balance, before.held + amount)
                holds[hold] = Hold_(account, amount)
                state.schedule(hold, event.time_ms + HOLD_MS)
            case HoldExpired(account, hold):
                before, gone = accounts[account], holds[hold]
                accounts[account] = Account(before.balance, before.held - gone.amount)
                del holds[hold]
            case Noted(account, "evolve"):
                accounts[account] = Account(-1)
                raise ZeroDivisionError("evolve")

    def reply(self, event: Event) -> Reply:
        match event.row:
            case Deposited(_, _, balance):
                return Reply(201, {"balance": balance, "offset": event.offset})
            case Noted(_, "reply"):
                raise ZeroDivisionError("reply")
        return Reply(200, {})


def topics(prefix: str, partitions: int = 1) -> tuple[Topic, Topic]:
    common: dict[str, Any] = {
        "key": "account",
        "event_time": None,
        "partitions": partitions,
        "owner": "bank",
        "doc": "A test's.",
    }
    commands = Topic(f"{prefix}.commands", COMMANDS, **common)
    events = Topic(f"{prefix}.events", (*EVENTS, *CONTROL_RECORDS), **common, decides=commands.name)
    return commands, events


def bank(prefix: str = "test.bank", partitions: int = 1, **more: Any) -> Decider:
    return Decider(prefix, *topics(prefix, partitions), Bank(), **more)
