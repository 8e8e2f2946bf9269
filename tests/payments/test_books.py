"""The fold of the books, and what is read of it, against counting everything by hand."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from typing import Any

import pytest

from schemas.payments.events import (
    ConvertCurrency,
    PostTransfer,
    RecordSettlement,
    RefundPayment,
    TransferRecorded,
)
from sinks.payments.books import HOUR_MS, OPEN_END, At, BookReader, Entry, Period
from sinks.payments.payments import PaymentReader
from streams.runtime.decider.records import CommandRejected
from streams.runtime.decider.rules import Rejected
from streams.runtime.testing import assert_replay_deterministic
from tests.payments.desk import Desk, T, opened, transfer
from tests.payments.store import PROJECTION, sink, stored
from tests.payments.test_payments import capture, payment, told

Log = list[tuple[int, Any]]


def busy(seed: int, steps: int = 160) -> Log:
    """Transfers of today and of before, holds, payments, over two days."""
    chance, desk = random.Random(seed), opened()
    for step in range(steps):
        effective = desk.now - chance.choice([0, 0, 0, 1_800_000, 5 * HOUR_MS, 30 * HOUR_MS])
        move = transfer(
            *chance.sample(["alice", "bob", "shop", "world"], 2),
            chance.randint(1, 900),
            transfer_id=f"t{step}",
            effective_at=effective if chance.random() < 0.5 else None,
        )
        _attempt(desk, move, chance.choice([1, 60_000, HOUR_MS // 2]))
        if step % 10 == 0:
            _attempt(desk, transfer("alice", "bob", 50, hold=True, transfer_id=f"h{step}"), 1)
            _attempt(desk, PostTransfer("main", f"h{step}", 20), 1)
        if step % 20 == 0:
            _paid(desk, f"main.p{step}", chance)
    return desk.log


def _attempt(desk: Desk, command: Any, after_ms: int) -> None:
    try:
        desk.send(command, after_ms)
    except Rejected as rejected:
        refusal = CommandRejected(type(command).__name__, rejected.code, "", 409, -1)
        desk.log.append((desk.now, refusal))


def _paid(desk: Desk, name: str, chance: random.Random) -> None:
    desk.send(payment(payment_id=name, capture="automatic"))
    for operation in ("auth", "capture"):
        report = told("", payment_id=name, operation_id=f"{name}.{operation}")
        desk.send(report, chance.randint(1, HOUR_MS // 3))
    desk.send(RefundPayment("main", name, f"{name}.r", 10))


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets are read in pages, and here in several."""
    monkeypatch.setattr("sinks.payments.books.PAGE_ROWS", 11)


def entries(log: Log, account: str) -> list[tuple[int, int, int]]:
    """Offset, time of effect and amount of all that changed an account, by hand."""
    found = []
    for offset, (_, row) in enumerate(log):
        for posting in getattr(row, "postings", ()):
            if posting["account"] == account and posting["amount"]:
                since = row.effective_at if isinstance(row, TransferRecorded) else row.recorded_at
                found.append((offset, since, posting["amount"]))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_any_cut_of_the_log_ends_in_the_same_books(seed: int) -> None:
    rows = [row for _, row in busy(seed, 60)]
    disturbed = assert_replay_deterministic(PROJECTION, rows, seed, lambda _: sink())
    assert disturbed.crashes > 0
    assert disturbed.batches > 5


def test_every_event_has_its_fate() -> None:
    log, into = busy(1), sink()
    rows = stored(log, into)
    (position,) = asyncio.run(rows.positions()).values()
    refused = sum(isinstance(row, CommandRejected) for _, row in log)
    assert position.counts == {"applied": len(log) - refused, "filtered": refused}
    assert refused > 0


@pytest.mark.parametrize("seed", range(3))
def test_balances_are_what_a_recount_of_the_amounts_gives(seed: int) -> None:
    log = busy(seed)
    recount: dict[str, int] = defaultdict(int)
    for _, row in log:
        for posting in getattr(row, "postings", ()):
            recount[posting["account"]] += posting["amount"]
    reader = BookReader(stored(log))
    found = {b.account: b.balance for b in asyncio.run(reader.balances("main"))}
    assert {name: recount[name] for name in found} == found
    assert set(recount) <= set(found)
    (eur, usd) = asyncio.run(reader.sums("main"))
    assert (eur.balance, usd.balance, eur.debits) == (0, 0, eur.credits)


@pytest.mark.parametrize("seed", range(6))
def test_as_of_any_time_and_offset_is_what_brute_force_gives(seed: int) -> None:
    log = busy(seed)
    reader, chance = BookReader(stored(log)), random.Random(seed)
    end = log[-1][0]
    backdated = 0
    for _ in range(120):
        account = chance.choice(["alice", "bob", "shop", "world", "$psp:EUR"])
        until = chance.choice([OPEN_END, end, chance.randint(T - 50 * HOUR_MS, end)])
        known = chance.choice([OPEN_END, chance.randint(0, len(log))])
        expected = sum(a for o, e, a in entries(log, account) if e < until and o < known)
        assert asyncio.run(reader.as_of("main", account, until, known)) == expected
        backdated += expected != sum(a for o, e, a in entries(log, account) if o < known)
    assert backdated > 10


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", [1, 7, 1_000])
def test_a_statement_in_pages(seed: int, limit: int) -> None:
    log, chance = busy(seed), random.Random(seed)
    reader = BookReader(stored(log))
    begin = T + chance.randint(-5, 20) * HOUR_MS + chance.randint(0, HOUR_MS)
    period = Period(begin, begin + chance.randint(1, 20) * HOUR_MS)
    pages = read(reader, "alice", period, limit)
    got = [(e.offset, e.effective_ms, e.amount) for page in pages for e in page.entries]
    mine = entries(log, "alice")
    inside = [x for x in mine if period.from_ms <= x[1] < period.to_ms]
    assert got == sorted(inside, key=lambda x: (x[1], x[0]))
    opening = sum(a for _, e, a in mine if e < period.from_ms)
    assert pages[0].opening == opening
    assert pages[-1].closing == opening + sum(a for _, _, a in inside)
    balance = opening
    for entry in (e for page in pages for e in page.entries):
        balance += entry.amount
        assert entry.balance == balance


def test_pages_do_not_move_when_the_past_is_written_to() -> None:
    desk, into = opened(), sink()
    for n in range(6):
        desk.send(transfer("alice", "bob", 10 + n), HOUR_MS)
    period = Period(T, T + 10 * HOUR_MS)
    first = asyncio.run(
        BookReader(stored(desk.log, into)).statement("main", "bob", period, None, limit=3)
    )
    desk.send(transfer("alice", "bob", 500, effective_at=T + HOUR_MS))
    again = BookReader(stored(desk.log, sink()))
    rest = asyncio.run(again.statement("main", "bob", period, first.next, limit=10))
    assert [e.amount for e in (*first.entries, *rest.entries)] == [10, 11, 12, 13, 14, 15]
    fresh = asyncio.run(again.statement("main", "bob", period, None, limit=10))
    assert 500 in [e.amount for e in fresh.entries]


def read(reader: BookReader, account: str, period: Period, limit: int) -> list[Any]:
    """All pages of a statement."""
    pages, at = [], None
    while True:
        page = asyncio.run(reader.statement("main", account, period, at, limit=limit))
        pages.append(page)
        at = page.next
        assert len(page.entries) <= limit
        if at is None:
            return pages
        assert isinstance(at, At)
        assert isinstance(page.entries[-1], Entry)


def test_transfers_and_payments_as_they_stand() -> None:
    desk = opened()
    desk.send(transfer("alice", "bob", 100, hold=True, reference="r", corrects="t0"))
    desk.send(PostTransfer("main", "t", 40))
    desk.send(
        ConvertCurrency("main", "x", "alice", "alice-usd", "EUR", 1_000, "USD", "1.1", "trip")
    )
    desk.send(payment())
    desk.send(told("auth", psp_reference="psp-1"))
    desk.send(capture("c", 100))
    rows = stored(desk.log)
    found = asyncio.run(BookReader(rows).transfer("main", "t"))
    assert found is not None
    assert (found.state, found.legs[0]["amount"], found.reference, found.corrects) == (
        *("posted", 40, "r"),
        "t0",
    )
    paid = asyncio.run(PaymentReader(rows).payment("main.p"))
    assert paid is not None
    assert (paid.state, paid.authorized, paid.captured) == ("authorized", 4_200, 0)
    assert [(o.kind, o.status, o.psp_reference) for o in paid.operations] == [
        ("authorize", "succeeded", "psp-1"),
        ("capture", "requested", ""),
    ]
    assert asyncio.run(PaymentReader(rows).payment("main.none")) is None
    assert asyncio.run(BookReader(rows).transfer("main", "none")) is None


LINE = {
    "line": 1,
    "operation_id": "main.p.c",
    "kind": "capture",
    "currency": "EUR",
    "amount": 4_200,
    "fee": 84,
    "psp_reference": "",
}


def settlement(*lines: dict[str, Any], **fields: Any) -> RecordSettlement:
    """A settlement file of the day."""
    day = T // 86_400_000 * 86_400_000
    made: dict[str, Any] = {
        "book": "main",
        "file_id": "f",
        "chunk": 0,
        "period_from": day,
        "period_to": day + 86_400_000,
        "lines": [{**line, "line": n} for n, line in enumerate(lines, 1)],
    }
    return RecordSettlement(**{**made, **fields})


def test_a_settlement_file_is_booked_once() -> None:
    desk = opened()
    desk.send(payment(capture="automatic"))
    desk.send(told("auth"))
    desk.send(told("capture"))
    desk.send(settlement({**LINE, "operation_id": "main.p.capture"}))
    assert (desk.balance("$psp:EUR"), desk.balance("$bank:EUR"), desk.balance("$fees:EUR")) == (
        0,
        -4_116,
        -84,
    )
    assert desk.refused(settlement(LINE)) == "exists"
    assert desk.refused(settlement(chunk=1)) == "bad_file"
    assert desk.refused(settlement({**LINE, "kind": "tip"}, chunk=1)) == "bad_file"
    assert desk.refused(settlement({**LINE, "amount": 0}, chunk=1)) == "bad_amount"
