"""What events ask of the outside: the provider does operations, other books take amounts.

Whatever comes of it goes back as a command, so a book learns of it in the order of its log, and a
call that is made twice, after a crash, changes nothing: the provider knows the operation by its id,
and the book refuses what is no news.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from connectors.payments import settings as psp_settings
from connectors.payments.psp import (
    Asked,
    HttpProvider,
    NoAnswer,
    NotTaken,
    Provider,
    Told,
    report_of,
)
from schemas.payments.events import (
    PAYMENT_CHANGED,
    TRANSFER_RECORDED,
    Operation,
    PaymentChanged,
    ReceiveFromBook,
    ReportOperation,
    SettleSent,
    TransferRecorded,
)
from streams.runtime.reactor.rules import GiveUp, Retry, Route, Task
from streams.runtime.settings import Settings

OLD_MS: Final = 3_600_000
"""An event this old may have been acted on before, by a reactor that has lost its place; providers
forget idempotency keys after a day or so."""


class AskProvider:
    """Does what `PaymentChanged` asks for.

    Nothing is ever done twice: the operation's id is the idempotency key, and where it may have
    been sent before (a retry, an old event, a query) the provider is asked for it first.
    """

    def __init__(self, provider: Provider, now_ms: Callable[[], int]) -> None:
        self._provider = provider
        self._now_ms = now_ms

    def route(self, record: str, row: Any) -> Route | None:
        """Payments that ask something; a book is a tenant."""
        if record != PAYMENT_CHANGED.fullname or _asked(row) is None:
            return None
        return Route(tenant=row.book, provider="psp")

    async def act(self, task: Task) -> ReportOperation | None:
        """Ask; what is not known is `unknown`, and the book asks for it again in time."""
        row: PaymentChanged = task.row
        operation = _asked(row)
        if operation is None:
            raise GiveUp("the event asks for nothing")
        again = task.attempt > 1 or task.redrives > 0 or self._now_ms() - task.time_ms > OLD_MS
        try:
            told = None
            if again or operation["ask"] == "query":
                told = await self._provider.look(operation["operation_id"])
            if told is None:
                told = await self._provider.perform(_request(row, operation))
        except NotTaken as error:
            raise Retry(str(error), after_ms=error.after_ms) from None
        except NoAnswer as error:
            return _unknown(row, operation, str(error))
        return self._report(told, operation)

    def gave_up(self, task: Task, reason: str) -> ReportOperation | None:
        """It is not known to be done; the book goes on asking."""
        operation = _asked(task.row)
        return None if operation is None else _unknown(task.row, operation, reason)

    def _report(self, told: Told, operation: Operation) -> ReportOperation | None:
        if told.reference != operation["operation_id"]:
            raise GiveUp("the provider answers about another operation")
        return report_of(told, operation["ask"])


class TellBooks:
    """Brings amounts between books: the held one to its receiver, the answer to its sender."""

    def route(self, record: str, row: Any) -> Route | None:
        """Held transfers to other books, and what was taken or refused of them."""
        if record != TRANSFER_RECORDED.fullname:
            return None
        concerns = (row.kind == "sent" and row.change == "held") or row.kind == "received"
        return Route() if concerns else None

    async def act(self, task: Task) -> ReceiveFromBook | SettleSent:
        """The command for the other book."""
        row: TransferRecorded = task.row
        if row.kind == "received":
            took = row.change == "posted"
            return SettleSent(row.counterpart, row.transfer_id, took, row.detail)
        (leg,) = row.legs
        return ReceiveFromBook(
            book=row.counterpart,
            transfer_id=row.transfer_id,
            account=row.counterpart_account,
            from_book=row.book,
            currency=leg["currency"],
            amount=leg["amount"],
            reference=row.reference,
        )

    def gave_up(self, task: Task, reason: str) -> None:
        """Nothing is called, so nothing is given up but with the log itself."""


@asynccontextmanager
async def open_provider(_: Settings) -> AsyncIterator[AskProvider]:
    """Connect to the provider of `payments.toml`."""
    provider = HttpProvider(psp_settings.read())
    try:
        yield AskProvider(provider, lambda: time.time_ns() // 1_000_000)
    finally:
        await provider.close()


@asynccontextmanager
async def open_clearing(_: Settings) -> AsyncIterator[TellBooks]:
    """There is nothing to connect to."""
    yield TellBooks()


def _asked(row: PaymentChanged) -> Operation | None:
    """The one operation that an event asks something about."""
    return next((operation for operation in row.operations if operation["ask"]), None)


def _request(row: PaymentChanged, operation: Operation) -> Asked:
    return Asked(
        reference=operation["operation_id"],
        payment=row.payment_id,
        kind=operation["kind"],
        currency=row.currency,
        amount=operation["amount"],
        method=row.method,
    )


def _unknown(row: PaymentChanged, operation: Operation, reason: str) -> ReportOperation:
    return ReportOperation(
        book=row.book,
        payment_id=row.payment_id,
        operation_id=operation["operation_id"],
        status="unknown",
        amount=None,
        currency="",
        psp_reference="",
        reason=reason,
        source=operation["ask"],
    )
