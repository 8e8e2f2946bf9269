"""What must hold after a run, read off the logs record by record, in the plainest way."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from sinks.drivers.memory import MemorySink, MemoryStore
from streams.runtime.decider.codec import Codec
from streams.runtime.decider.folded import Folded, empty
from streams.runtime.decider.owner import Owner
from streams.runtime.decider.records import CommandRejected, OwnershipClaimed
from streams.runtime.decider.testing import LogRecord, MemoryPorts, Slice
from streams.runtime.decider.wire import CAUSE, DECISION, Cause, Envelope, carried
from streams.runtime.derivation.wire import HEARTBEAT, SOURCE
from streams.runtime.lane.span import Seat, Span
from streams.runtime.outcome import Fate
from tests.runtime.decider.bank import Deposited, Held, HoldExpired
from tests.simulation import models
from tests.simulation.broker import Group
from tests.simulation.deciding import codecs
from tests.simulation.folding import FoldingProcess, Letters
from tests.simulation.world import World


@dataclass(frozen=True)
class Accepted:
    """One event that counts."""

    offset: int
    source: int
    timer: bool
    row: Any
    envelope: Envelope | None


def accepted(town: Any, partition: int) -> list[Accepted]:
    """The events that count, by rule A2, one by one."""
    codec, found = codecs(models.DECIDER)[0], []
    epoch: tuple[int, bytes] | None = None
    number = -1
    log = town.broker.log(models.EVENTS.name, partition)
    for offset, (one, (_, row)) in enumerate(zip(log, decoded(codec, log), strict=True)):
        if isinstance(row, OwnershipClaimed):
            epoch = (offset, bytes.fromhex(row.nonce))
            continue
        headers = dict(one.headers)
        claim, nonce, seq, source = struct.unpack(">q16sqq", headers[DECISION])
        if (claim, nonce) != epoch or seq != number + 1:
            town.world.seen["stale event refused"] += 1
            continue
        number = seq
        timer = bool(Cause.unpack(headers[CAUSE]).timer) if CAUSE in headers else False
        envelope = None if timer else carried(one.headers, "")[0]
        found.append(Accepted(offset, source, timer, row, envelope))
    return found


def decoded(codec: Codec, log: list[LogRecord]) -> list[Any]:
    """Name and row of every record; none of these logs holds a bad one."""
    return codec.decode([one.value for one in log]) if log else []


def answered(town: Any) -> bool:
    """Whether the last command of every partition has its event, and every hold its end."""
    for partition in range(models.EVENTS.partitions):
        commands = town.broker.log(models.DECIDER.commands.name, partition)
        events = accepted(town, partition)
        if commands and (not events or events[-1].source < len(commands) - 1):
            return False
        holds = Counter(type(one.row) for one in events)
        if holds[Held] != holds[HoldExpired]:
            return False
    return True


def check(town: Any) -> None:
    """Raise `AssertionError` for the first promise that was broken."""
    events = {p: accepted(town, p) for p in range(models.EVENTS.partitions)}
    for partition, mine in events.items():
        one_event_a_command(town, partition, mine)
        bank_adds_up(mine)
        keys_have_one_effect(mine)
        owners_agree(town, partition, mine)
    answers_are_true(town, events)
    balances_equal(town, events)
    moves_equal(town, events)
    windows_equal(town)
    counts_equal(town)


def one_event_a_command(town: Any, partition: int, mine: list[Accepted]) -> None:
    commands = town.broker.log(models.DECIDER.commands.name, partition)
    sources = [one.source for one in mine if not one.timer]
    assert sources == list(range(len(commands))), f"commands of {partition} answered: {sources}"


def bank_adds_up(mine: list[Accepted]) -> None:
    balances: dict[str, int] = defaultdict(int)
    held: dict[str, dict[str, int]] = defaultdict(dict)
    expired: Counter[str] = Counter()
    for one in mine:
        match one.row:
            case Deposited(account, amount, balance):
                balances[account] += amount
                assert balances[account] == balance, f"decided on {balance - amount}: {one}"
            case Held(account, amount, hold):
                held[account][hold] = amount
                assert sum(held[account].values()) <= balances[account], f"overdrawn: {one}"
            case HoldExpired(account, hold):
                expired[hold] += 1
                assert held[account].pop(hold, None) is not None, f"expired twice: {one}"
    assert not any(held.values()), f"holds without end: {dict(held)}"


def keys_have_one_effect(mine: list[Accepted]) -> None:
    effects: Counter[str] = Counter()
    for one in mine:
        if one.envelope and one.envelope.idempotency_key:
            effects[one.envelope.idempotency_key] += not isinstance(one.row, CommandRejected)
    twice = [key for key, times in effects.items() if times > 1]
    assert not twice, f"keys with more than one effect: {twice}"


def replayed(town: Any, partition: int, stop: int | None = None) -> Owner:
    """A reader that folds the log up to there from nothing."""
    decider = models.DECIDER
    folded = Folded(decider.rules, empty(decider.rules), key_ttl_ms=decider.idempotency_ttl_ms)
    ports = MemoryPorts(town.world.random)
    reader = Owner(
        *(decider, partition, folded, codecs(decider)[0], ports),
        writer="reader",
        commands_topic_id="commands",
    )
    reader.read(Slice(0, town.broker.log(models.EVENTS.name, partition)[:stop]))
    return reader


def owners_agree(town: Any, partition: int, mine: list[Accepted]) -> None:
    wanted = replayed(town, partition).folded
    for process in town.processes:
        owned = getattr(process, "owners", {}).get(partition)
        if owned is None or owned.owner.in_flight or owned.owner.phase != "owning":
            continue
        if owned.owner.folded.next_offset == wanted.next_offset:
            assert owned.owner.folded.image().digest() == wanted.image().digest()
            town.world.seen["owner compared"] += 1
    for kept in town.archive.kept.get(partition, [])[-3:]:
        prefix = replayed(town, partition, kept.last.offset + 1).folded
        assert kept.filter == prefix.filter
        assert kept.image.digest() == prefix.image().digest(), "a snapshot of what never was"
        town.world.seen["snapshot compared"] += 1


def answers_are_true(town: Any, events: dict[int, list[Accepted]]) -> None:
    known = {(p, one.offset): one for p, mine in events.items() for one in mine}
    decided = {
        one.envelope.correlation_id for mine in events.values() for one in mine if one.envelope
    }
    for answer in town.answers:
        one = known.get((answer.partition, answer.offset))
        assert one is not None, f"answered what is not on the log: {answer}"
        assert answer.correlation_id in decided, f"answered before it was on the log: {answer}"
        if not answer.replay:
            assert one.envelope is not None
            assert one.envelope.correlation_id == answer.correlation_id
            assert one.source == answer.source_offset
        town.world.seen["answer compared"] += 1


def stored(town: Any, model: str, table: str) -> dict[Any, tuple[Any, ...]]:
    (projection,) = (one for one in models.PROJECTIONS if one.name == model)
    sink = MemorySink(projection.model, town.store)
    columns = list(projection.model.table(table).columns)
    found: dict[Any, tuple[Any, ...]] = {}
    for frame in sink.rows(1, table):
        for *row, partition in frame.select(*columns, "_partition").iter_rows():
            keys = len(projection.model.table(table).columns) - 2
            key = (*row[:keys], partition)
            assert key not in found, f"{model}: {key} twice"
            found[key] = tuple(row[keys:])
    return found


def balances_equal(town: Any, events: dict[int, list[Accepted]]) -> None:
    wanted: dict[Any, tuple[int, int]] = {}
    for partition, mine in events.items():
        for one in mine:
            if isinstance(one.row, Deposited | Held):
                key = (one.row.account, partition)
                balance, holds = wanted.get(key, (0, 0))
                if isinstance(one.row, Deposited):
                    wanted[key] = (balance + one.row.amount, holds)
                else:
                    wanted[key] = (balance, holds + 1)
    assert stored(town, "sim-balances", "balances") == wanted


def moves(town: Any, partition: int) -> Iterator[tuple[int, tuple[str, int], int, int, Any]]:
    """The derived records that count, by rule B2: offset, source, its offset and index, row."""
    codec = models._CODEC
    last: dict[tuple[str, int], tuple[int, int]] = {}
    log = town.broker.log(models.MOVES.name, partition)
    beats = {at for at, one in enumerate(log) if one.value is None}
    rows = iter(decoded(codec, [one for one in log if one.value is not None]))
    for at, one in enumerate(log):
        row = None if at in beats else next(rows)[1]
        raw = dict(one.headers)[SOURCE]
        name, source, _, offset, index, *prev, _ = struct.unpack(">8siiqiqiq", raw)
        place = (name.hex(), source)
        before = last.get(place, (-1, -1))
        if (offset, index) <= before or tuple(prev) > before:
            town.world.seen["derived record refused"] += 1
            continue
        last[place] = (offset, index)
        if index != HEARTBEAT:
            yield at, place, offset, index, row


def moves_equal(town: Any, events: dict[int, list[Accepted]]) -> None:
    wanted = Counter(
        (partition, one.offset, index, row)
        for partition, mine in events.items()
        for one in mine
        for index, row in enumerate(models.moved(type(one.row).__name__, one.row))
    )
    found: Counter[Any] = Counter()
    totals: dict[Any, tuple[int, int]] = {}
    for partition in range(models.MOVES.partitions):
        for at, (_, source), offset, index, row in moves(town, partition):
            found[source, offset, index, row] += 1
            total, _ = totals.get(("all", row.place, partition), (0, 0))
            totals["all", row.place, partition] = (total + row.amount, at)
    assert found == wanted, f"missing {wanted - found}, too many {found - wanted}"
    assert stored(town, "sim-totals", "totals") == totals


def windows_equal(town: Any) -> None:
    """The same as one process that folds the log in one go, and every late row has its letter."""
    world, letters = World(0), Letters(World(0))
    world.faulty = False
    letters._world.faulty = False
    store = MemoryStore()
    clean = FoldingProcess(world, "clean", models.CLICKS, town.broker, Group(world), letters, store)
    seat = Seat(models.CLICKS.topic.name, 0)
    clean.pump.locate(seat)
    messages = town.broker.messages(models.CLICKS.topic.name, 0, 0, 10**9)
    if messages:
        clean.pump.process(Span(seat, messages, begins=0))
    sinks = [MemorySink(models.CLICKS.model, one) for one in (store, town.store)]
    rows = [
        sorted(pl.concat([*sink.rows(1, "windows")]).iter_rows()) if messages else []
        for sink in sinks
    ]
    assert rows[0] == rows[1]
    late = [{one.message.offset() for one in box.sent} for box in
            (letters, town.letters[models.CLICKS.name])]  # fmt: skip
    assert late[0] == late[1]
    town.world.seen["late row"] += len(late[0])


def counts_equal(town: Any) -> None:
    """Every record of every log has its fate in the stored position."""
    for projection in models.PROJECTIONS:
        for partition in range(projection.topic.partitions):
            log = town.broker.log(projection.topic.name, partition)
            position = town.position(projection.name, projection.topic.name, partition)
            if position is None:
                assert not log
                continue
            assert sum(position.counts.values()) == len(log) == position.next_offset
            town.world.seen["stale row"] += position.counts.get(Fate.STALE, 0)
