"""A payment is read as it was after one event, however reads and writes fall together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise, product
from typing import Any

import polars as pl
import pytest

from schemas.payments.events import PaymentChanged
from sinks.payments import OPERATIONS, PAYMENTS
from sinks.payments.payments import Payment, PaymentReader
from streams.payments.payments import AUTHORIZED_MS
from tests.payments.desk import Desk, opened
from tests.payments.store import stored
from tests.payments.test_payments import P, authorized, capture, captured, payment, refund, told
from tests.rows import MemoryRows


class Between(MemoryRows):
    """A store that is written to while it is read: every table is as it was at a moment."""

    def __init__(self, tables: Mapping[str, MemoryRows]) -> None:
        self._tables = tables

    async def page(self, table: str, *args: Any, **more: Any) -> pl.DataFrame:
        return await self._tables[table].page(table, *args, **more)


def by_card() -> Desk:
    """Authorized, captured in part, and some of that given back."""
    desk = captured(2_000)
    desk.send(refund("r", 1_000))
    desk.send(told("r"))
    return desk


def at_once() -> Desk:
    """Captured by itself once it is authorized: an event with two operations."""
    desk = authorized(capture="automatic")
    desk.send(told("capture"))
    return desk


def by_wallet() -> Desk:
    """Paid and given back by events that ask nobody."""
    desk = opened()
    desk.send(payment(method="wallet:alice", capture="automatic"))
    desk.send(refund("r"))
    return desk


def lapsed() -> Desk:
    """The authorization has run its time while a capture is open, which changes nothing."""
    desk = authorized()
    desk.send(capture("c"))
    desk.advance(AUTHORIZED_MS)
    return desk


async def read(tables: Mapping[str, MemoryRows]) -> Payment | None:
    return await PaymentReader(Between(tables)).payment(P)


@pytest.mark.parametrize("story", [by_card, at_once, by_wallet, lapsed])
async def test_a_read_between_two_writes_is_never_of_both(story: Callable[[], Desk]) -> None:
    """Each of the two tables is read before or after any of the payment's events."""
    log = story().log
    first = next(n for n, (_, row) in enumerate(log) if isinstance(row, PaymentChanged))
    moments = [stored(log[:n]) for n in range(first, len(log) + 1)]
    whole = [await PaymentReader(rows).payment(P) for rows in moments]
    assert (whole[0], len(whole)) == (None, len(log) - first + 1)
    assert len(set(map(repr, whole))) > 2
    for facts, operations in product(moments, moments):
        seen = await read({PAYMENTS.name: facts, OPERATIONS.name: operations})
        assert seen in (None, whole[moments.index(operations)])
        assert seen is not None or moments[0] in (facts, operations)


@pytest.mark.parametrize("story", [by_card, at_once, by_wallet, lapsed])
async def test_a_payment_is_told_as_its_last_event_tells_it(story: Callable[[], Desk]) -> None:
    log = story().log
    for n, (_, row) in enumerate(log, 1):
        if isinstance(row, PaymentChanged):
            found = await PaymentReader(stored(log[:n])).payment(P)
            assert found is not None
            for name in ("state", "order_id", "account", "currency", "amount"):
                assert getattr(found, name) == getattr(row, name), name
            for name in ("authorized", "captured", "refunded"):
                assert getattr(found, name) == getattr(row, name), name
            if row.operations:
                assert found.number == row.number


async def test_what_never_changes_of_a_payment_never_changes() -> None:
    """The premise of reading two tables: the first event of a payment writes all of `payments`."""
    log = by_card().log
    first = next(n for n, (_, row) in enumerate(log, 1) if isinstance(row, PaymentChanged))
    facts = [
        await stored(log[:n]).page(PAYMENTS.name, {"payment_id": P}, 10)
        for n in range(first, len(log) + 1)
    ]
    assert len(facts) > 4
    assert all(one.equals(other) for one, other in pairwise(facts))
