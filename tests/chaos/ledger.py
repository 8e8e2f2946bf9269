"""Seeded transfers between few hot accounts of several currencies."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

from tests.chaos.commands import Order

BOOKS = ("north", "south")
CURRENCIES = ("EUR", "USD", "JPY")
WALLETS = 25
"""A book; so 50 hot accounts in all, beside those that money comes from."""
FUNDS = 20_000
RATES = {
    ("EUR", "USD"): "1.1", ("USD", "EUR"): "0.9", ("EUR", "JPY"): "162.5",
    ("JPY", "EUR"): "0.00615", ("USD", "JPY"): "149.25", ("JPY", "USD"): "0.0067",
}  # fmt: skip


def wallets(currency: str) -> list[str]:
    """The accounts of a currency, in every book."""
    at = CURRENCIES.index(currency)
    return [f"w{number}" for number in range(WALLETS) if number % len(CURRENCIES) == at]


def opening(run: str) -> Iterator[Order]:
    """All accounts, and money for them: it comes from accounts that may go below zero."""
    for book in BOOKS:
        for currency in CURRENCIES:
            for account in (f"world-{currency}", *wallets(currency)):
                world = account.startswith("world")
                row = {
                    "book": book, "account": account, "currency": currency,
                    "side": "debit" if world else "credit", "overdraft": None if world else 0,
                }  # fmt: skip
                yield Order("OpenAccount", book, row, f"{run}-open-{book}-{account}")
            for account in wallets(currency):
                leg = (f"world-{currency}", account, currency, FUNDS)
                yield _transfer(book, f"{run}-fund-{book}-{account}", [leg])


def _transfer(book: str, key: str, legs: list[tuple[str, str, str, int]], **more: Any) -> Order:
    names = ("debit_account", "credit_account", "currency", "amount")
    row = {
        "book": book, "transfer_id": key, "hold": False, "timeout_ms": 0, "effective_at": None,
        "reference": "", "corrects": "",
        "legs": [dict(zip(names, leg, strict=True)) for leg in legs],
    }  # fmt: skip
    return Order("RecordTransfer", book, row | more, key)


def transfers(seed: int, run: str, count: int) -> Iterator[Order]:
    """Transfers of one leg or two, conversions, holds that are posted or voided; some ask for more
    than there is, some are sent twice, some use a key again for something else.
    """
    chance = random.Random(seed)
    held: deque[tuple[str, str]] = deque()
    for number in range(count):
        key, book = f"{run}-{number}", chance.choice(BOOKS)
        currency = chance.choice(CURRENCIES)
        dice = chance.random()
        amount = chance.randrange(1, 6_000)
        if dice < 0.08:
            order = _conversion(chance, book, key, amount)
        elif dice < 0.12 and len(held) > 50:
            book, transfer = held.popleft()
            row: dict[str, Any] = {"book": book, "transfer_id": transfer}
            if chance.random() < 0.6:
                order = Order("PostTransfer", book, row | {"amount": None}, key)
            else:
                order = Order("VoidTransfer", book, row, key)
        else:
            giver, taker = chance.sample(wallets(currency), 2)
            legs = [(giver, taker, currency, amount)]
            if 0.2 < dice < 0.27:
                other = chance.choice(CURRENCIES)
                giver, taker = chance.sample(wallets(other), 2)
                legs.append((giver, taker, other, chance.randrange(1, 500)))
            order = _transfer(book, key, legs, hold=0.12 < dice < 0.18)
            if order.row["hold"]:
                held.append((book, key))
        order.repeat = chance.random() < 0.03
        yield order
        if chance.random() < 0.005:
            giver, taker = chance.sample(wallets(currency), 2)
            stolen = _transfer(order.book, f"{key}-stolen", [(giver, taker, currency, 1)])
            stolen.key = key  # the key of another command
            yield stolen


def _conversion(chance: random.Random, book: str, key: str, amount: int) -> Order:
    sell, buy = chance.choice(list(RATES))
    row = {
        "book": book, "transfer_id": key, "from_account": chance.choice(wallets(sell)),
        "to_account": chance.choice(wallets(buy)), "sell_currency": sell, "sell_amount": amount,
        "buy_currency": buy, "rate": RATES[sell, buy], "reference": "",
    }  # fmt: skip
    return Order("ConvertCurrency", book, row, key)
