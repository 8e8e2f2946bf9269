"""Reads of books: balances now and as of any moment, statements, transfers, sums.

There are two clocks. An entry *counts since* `effective_ms` and is *known since* its offset; a
balance as of a time and known at an offset never changes again, whatever is recorded later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import polars as pl

from schemas.payments.events import EVENTS
from sinks.payments import ACCOUNTS, BACKDATED, BALANCES, BOOKS, ENTRIES, HOUR_MS, HOURS, TRANSFERS
from sinks.readers.rows import Rows
from streams.runtime.kafka import partition_of

OPEN_END: Final = 2**62
"""Offset or time behind all others."""

PAGE_ROWS: Final = 5_000

Applied = dict[tuple[str, int], int]
"""Topic and partition → the first offset not folded yet."""


async def bucket(rows: Rows, table: str, key: Mapping[str, Any], partition: int) -> pl.DataFrame:
    """All rows of a bucket, in key order."""
    shape = BOOKS.table(table)
    columns = {**shape.columns, "_partition": pl.Int32}
    behind = [name for name in getattr(shape, "key", {}) if name not in key]
    pages = [pl.DataFrame(schema=columns)]
    after: tuple[Any, ...] | None = None
    while True:
        page = await rows.page(table, key, PAGE_ROWS, after=after, partition=partition)
        pages.append(page.select(list(columns)))
        if page.height < PAGE_ROWS or not behind:
            return pl.concat(pages)
        after = page.select(behind).row(-1)


@dataclass(frozen=True)
class Balance:
    """How an account stands: credits less debits, and what is held of it, in minor units."""

    account: str
    currency: str
    balance: int
    debits_held: int
    credits_held: int
    side: str | None = None
    overdraft: int | None = None


@dataclass(frozen=True)
class Entry:
    """One change of an account's balance; `balance` is the one after it, in order of effect."""

    number: int
    offset: int
    effective_ms: int
    recorded_ms: int
    amount: int
    balance: int
    kind: str
    of: str
    reference: str


@dataclass(frozen=True)
class Period:
    """A span of time: what counts in `[from_ms, to_ms)`."""

    from_ms: int
    to_ms: int


@dataclass(frozen=True)
class At:
    """A place in a statement: behind the entry of this time and offset, where `balance` stood.
    `known` is the offset before which the whole statement looks.
    """

    effective_ms: int
    offset: int
    balance: int
    known: int


@dataclass(frozen=True)
class Statement:
    """A page of a statement. `next` is where the next page begins; None on the last, which is the
    only one that knows the `closing` balance.
    """

    opening: int
    entries: Sequence[Entry]
    closing: int | None
    known: int
    next: At | None


@dataclass(frozen=True)
class Sums:
    """All accounts of a book in one currency: `balance` is zero, or something is wrong."""

    currency: str
    accounts: int
    debits: int
    credits: int
    balance: int


@dataclass(frozen=True)
class Transfer:
    """A transfer as it stands."""

    transfer_id: str
    kind: str
    state: str
    number: int
    effective_ms: int
    recorded_ms: int
    expires_ms: int | None
    legs: Sequence[Mapping[str, Any]] = field(default_factory=list)
    reference: str = ""
    corrects: str = ""
    counterpart: str = ""
    counterpart_account: str = ""
    detail: str = ""


class BookReader:
    """What is read of books. One instance serves any number of concurrent requests."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def close(self) -> None:
        """Release the connections."""
        await self._rows.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return {at: p.next_offset for at, p in (await self._rows.positions()).items()}

    async def balances(self, book: str) -> list[Balance]:
        """Every account of a book, by name."""
        found = await self._of(book, BALANCES.name, book=book)
        opened = await self._of(book, ACCOUNTS.name, book=book)
        both = found.join(opened.select("account", "side", "overdraft"), on="account", how="left")
        columns = ("account", "currency", "balance", "debits_held", "credits_held")
        rows = both.sort("account").select(*columns, "side", "overdraft")
        return [Balance(**row) for row in rows.to_dicts()]

    async def balance(self, book: str, account: str) -> Balance | None:
        """How one account stands now; None where there is none."""
        return next((b for b in await self.balances(book) if b.account == account), None)

    async def sums(self, book: str) -> list[Sums]:
        """All accounts together, by currency: the trial balance."""
        found = await self._of(book, BALANCES.name, book=book)
        balance = pl.col("balance")
        rows = (
            found.group_by("currency")
            .agg(
                pl.len().alias("accounts"),
                (-balance.filter(balance < 0).sum()).alias("debits"),
                balance.filter(balance > 0).sum().alias("credits"),
                balance.sum(),
            )
            .sort("currency")
        )
        return [Sums(**row) for row in rows.to_dicts()]

    async def as_of(
        self, book: str, account: str, until_ms: int = OPEN_END, known: int = OPEN_END
    ) -> int:
        """The balance by entries that count before `until_ms` and have an offset before `known`.

        Up to some hour all that was recorded counts, so its closing balance is the base; then that
        one hour's entries are looked at, and those that were recorded later and count earlier.
        """
        hours = (await self._of(book, HOURS.name, book=book, account=account)).sort("hour_ms")
        last_ms = until_ms // HOUR_MS * HOUR_MS
        cut = hours.filter((pl.col("hour_ms") >= last_ms) | (pl.col("offset") >= known))
        hour_ms = cut["hour_ms"][0] if cut.height else OPEN_END
        before = hours.filter(pl.col("hour_ms") < hour_ms)
        base = int(before["balance"][-1]) if before.height else 0
        if hour_ms == OPEN_END:
            return base
        entries = await self._hour(book, account, hour_ms)
        later = await self._backdated(book, account)
        later = later.filter(pl.col("recorded_ms") >= hour_ms + HOUR_MS)
        seen = pl.concat([entries, later.select(entries.columns)]).filter(
            (pl.col("effective_ms") < until_ms) & (pl.col("offset") < known)
        )
        return base + int(seen["amount"].sum())

    async def statement(
        self, book: str, account: str, period: Period, at: At | None, *, limit: int
    ) -> Statement:
        """Up to `limit` entries that count in the period, in order of effect, behind `at`.

        The first page fixes the offset up to which all pages look, so that what is recorded
        meanwhile moves nothing.
        """
        if at is None:
            known = (await self.applied()).get((EVENTS.name, partition(book)), 0)
            opening = await self.as_of(book, account, period.from_ms, known)
            at = At(period.from_ms, -1, opening, known)
        late = (await self._backdated(book, account)).filter(pl.col("offset") < at.known)
        hours = await self._of(book, HOURS.name, book=book, account=account)
        begins = pl.col("effective_ms") // HOUR_MS * HOUR_MS
        starts = {*hours["hour_ms"].to_list(), *late.select(begins).to_series().to_list()}
        first = at.effective_ms // HOUR_MS * HOUR_MS
        found: list[Entry] = []
        balance = at.balance
        for hour_ms in sorted(start for start in starts if first <= start < period.to_ms):
            own = await self._hour(book, account, hour_ms)
            own = own.filter(pl.col("effective_ms") >= hour_ms)
            rows = pl.concat([own, late.filter(begins == hour_ms).select(own.columns)])
            rows = rows.filter(
                pl.col("effective_ms").is_between(period.from_ms, period.to_ms, closed="left")
                & (pl.col("offset") < at.known)
                & (
                    (pl.col("effective_ms") > at.effective_ms)
                    | ((pl.col("effective_ms") == at.effective_ms) & (pl.col("offset") > at.offset))
                )
            )
            for row in rows.sort("effective_ms", "offset").to_dicts():
                if len(found) == limit:
                    place = At(found[-1].effective_ms, found[-1].offset, balance, at.known)
                    return Statement(at.balance, found, None, at.known, place)
                balance += row["amount"]
                found.append(Entry(**{**row, "balance": balance}))
        return Statement(at.balance, found, balance, at.known, None)

    async def transfer(self, book: str, transfer_id: str) -> Transfer | None:
        """A transfer as it stands; None where there is none."""
        rows = await self._of(book, TRANSFERS.name, book=book, transfer_id=transfer_id)
        if not rows.height:
            return None
        (row,) = rows.drop("book", "_partition").to_dicts()
        names = ("debit_accounts", "credit_accounts", "currencies", "amounts")
        legs = [
            {"debit_account": debit, "credit_account": credit, "currency": c, "amount": amount}
            for debit, credit, c, amount in zip(*(row.pop(name) for name in names), strict=True)
        ]
        return Transfer(**row, legs=legs)

    async def _hour(self, book: str, account: str, hour_ms: int) -> pl.DataFrame:
        key = {"book": book, "account": account, "hour_ms": hour_ms}
        return (await self._of(book, ENTRIES.name, **key)).select(*_ENTRY)

    async def _backdated(self, book: str, account: str) -> pl.DataFrame:
        found = await self._of(book, BACKDATED.name, book=book, account=account)
        return found.select(*_ENTRY)

    async def _of(self, book: str, table: str, /, **key: Any) -> pl.DataFrame:
        """The rows of a bucket. All of a book is in the log partition of its key."""
        return await bucket(self._rows, table, key, partition(book))


_ENTRY: Final = (
    *("number", "offset", "effective_ms", "recorded_ms", "amount", "balance"),
    *("kind", "of", "reference"),
)


def partition(book: str) -> int:
    """The log partition of a book."""
    return partition_of(book, EVENTS.partitions)
