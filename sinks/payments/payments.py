"""Reads of payments and settlement files."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from sinks.payments import DAY_MS, DONE, FILES, LINES, OPERATIONS, PAYMENTS, SETTLED
from sinks.payments.books import Applied, bucket, partition
from sinks.payments.reconciliation import Finding, Tariff, compare
from sinks.readers.rows import Rows


@dataclass(frozen=True)
class Operation:
    """What was asked of the provider, and what came of it."""

    operation_id: str
    kind: str
    status: str
    amount: int
    psp_reference: str
    reason: str
    requested_ms: int
    changed_ms: int
    queries: int


@dataclass(frozen=True)
class Payment:
    """A payment as it stands after the event `number`, the last that changed an operation."""

    payment_id: str
    book: str
    order_id: str
    state: str
    account: str
    currency: str
    amount: int
    authorized: int
    captured: int
    refunded: int
    created_ms: int
    changed_ms: int
    number: int
    operations: Sequence[Operation]


@dataclass(frozen=True)
class SettlementFile:
    """A settlement file that was taken in."""

    file_id: str
    lines: int
    period_from_ms: int
    period_to_ms: int
    recorded_ms: int


class PaymentReader:
    """What is read of payments. One instance serves any number of concurrent requests."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    async def close(self) -> None:
        """Release the connections."""
        await self._rows.close()

    async def applied(self) -> Applied:
        """How far it is folded."""
        return {at: p.next_offset for at, p in (await self._rows.positions()).items()}

    async def payment(self, payment_id: str) -> Payment | None:
        """A payment with its operations, all as they were after one event; None where there is
        none. The two tables are read at two moments, but one of them never changes.
        """
        book = book_of(payment_id)
        facts, operations = await asyncio.gather(
            self._of(book, PAYMENTS.name, payment_id=payment_id),
            self._of(book, OPERATIONS.name, payment_id=payment_id),
        )
        if not facts.height or not operations.height:
            return None
        (row,) = facts.drop("_partition").to_dicts()
        (stand,) = operations.select(*_STAND).top_k(1, by="number").to_dicts()
        told = operations.drop("_partition", "payment_id", *_STAND_ONLY)
        told = told.sort("requested_ms", "operation_id")
        return Payment(**row, **stand, operations=[Operation(**one) for one in told.to_dicts()])

    async def files(self, book: str) -> list[SettlementFile]:
        """The settlement files of a book, the newest first."""
        rows = await self._of(book, FILES.name, book=book)
        by_file = rows.group_by("file_id").agg(
            pl.col("lines").sum(),
            pl.col("period_from_ms", "period_to_ms").first(),
            pl.col("recorded_ms").max(),
        )
        order = by_file.sort(["period_from_ms", "file_id"], descending=[True, False])
        return [SettlementFile(**row) for row in order.to_dicts()]

    async def reconciliation(
        self, book: str, file_id: str, tariff: Tariff | None
    ) -> list[Finding] | None:
        """One file against our operations; None where there is no such file.

        We may learn of an operation on another day than the provider did it, so ours are looked
        up by id, too; what the file should have is what we learnt of within its period.
        """
        lines = await self._of(book, LINES.name, book=book, file_id=file_id)
        if not lines.height:
            return None
        from_ms, to_ms = lines["period_from_ms"][0], lines["period_to_ms"][0]
        days = range(from_ms // DAY_MS * DAY_MS, to_ms, DAY_MS)
        own = await self._many(DONE.name, book, [{"book": book, "day_ms": day} for day in days])
        own = own.with_columns(
            pl.col("done_ms").is_between(from_ms, to_ms, closed="left").alias("expected")
        ).select(*_OURS, "expected")
        asked = set(lines["operation_id"].to_list()) - set(own["operation_id"].to_list())
        others = await self._done(book, asked)
        missing = set(own.filter("expected")["operation_id"]) - set(lines["operation_id"])
        settled = await self._many(
            SETTLED.name, book, [{"operation_id": name} for name in sorted(missing)]
        )
        return compare(lines, pl.concat([own, others]), set(settled["operation_id"]), tariff)

    async def _done(self, book: str, operations: set[str]) -> pl.DataFrame:
        """Those of the operations that succeeded, found by the payment their id begins with."""
        payments = sorted({name.rpartition(".")[0] for name in operations})
        keys = [{"payment_id": name} for name in payments]
        found = await self._many(OPERATIONS.name, book, keys)
        currencies = await self._many(PAYMENTS.name, book, keys)
        mine = found.join(currencies.select("payment_id", "currency"), on="payment_id").filter(
            pl.col("operation_id").is_in(sorted(operations)) & (pl.col("status") == "succeeded")
        )
        return mine.select(*_OURS, pl.lit(False).alias("expected"))

    async def _many(self, table: str, book: str, buckets: Sequence[dict[str, Any]]) -> pl.DataFrame:
        """The rows of many buckets, a few at a time."""
        found: list[pl.DataFrame] = []
        for at in range(0, len(buckets), _AT_ONCE):
            part = buckets[at : at + _AT_ONCE]
            found += await asyncio.gather(*(self._of(book, table, **key) for key in part))
        if not found:
            shape = next(one for one in _TABLES if one.name == table)
            return pl.DataFrame(schema={**shape.columns, "_partition": pl.Int32})
        return pl.concat(found)

    async def _of(self, book: str, table: str, /, **key: Any) -> pl.DataFrame:
        return await bucket(self._rows, table, key, partition(book))


_STAND_ONLY = ("number", "state", "authorized", "captured", "refunded")
_STAND = (*_STAND_ONLY, "changed_ms")
_OURS = ("operation_id", "kind", "currency", "amount")
_TABLES = (DONE, OPERATIONS, PAYMENTS, SETTLED)
_AT_ONCE = 32


def book_of(payment_id: str) -> str:
    """The book of a payment: its id begins with it."""
    return payment_id.partition(".")[0]
