"""The rules of the decider `payments`: which command goes where, how events fold, which timers run.

Everything of a book has one writer, the owner of the book's partition, so a transfer between any
of its accounts is one decision (infra/decisions/0011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.payments.events import (
    ACCOUNT_OPENED,
    CAPTURE_PAYMENT,
    CONVERT_CURRENCY,
    CREATE_PAYMENT,
    OPEN_ACCOUNT,
    PAYMENT_CHANGED,
    POST_TRANSFER,
    RECEIVE_FROM_BOOK,
    RECORD_SETTLEMENT,
    RECORD_TRANSFER,
    REFUND_PAYMENT,
    REPORT_OPERATION,
    SEND_TO_BOOK,
    SETTLE_SENT,
    TRANSFER_RECORDED,
    VOID_PAYMENT,
    VOID_TRANSFER,
    AccountOpened,
    PaymentChanged,
    SettlementRecorded,
    TransferRecorded,
)
from streams.payments import clearing, ledger, payments, replies, settlements, transfers
from streams.payments.machine import OPEN, find, stand, with_operation
from streams.payments.state import TABLES, Account, Book, Hold, Operation, Payment
from streams.runtime.decider.rules import Command, Event, Reply, State, Timer

_DECIDES: Final[Mapping[str, Callable[[State, Any, int], Any]]] = {
    OPEN_ACCOUNT.fullname: transfers.open_account,
    RECORD_TRANSFER.fullname: transfers.record,
    POST_TRANSFER.fullname: transfers.post,
    VOID_TRANSFER.fullname: transfers.void,
    CONVERT_CURRENCY.fullname: transfers.convert,
    SEND_TO_BOOK.fullname: clearing.send,
    RECEIVE_FROM_BOOK.fullname: clearing.receive,
    SETTLE_SENT.fullname: transfers.settle_sent,
    CREATE_PAYMENT.fullname: payments.create,
    CAPTURE_PAYMENT.fullname: payments.capture,
    REFUND_PAYMENT.fullname: payments.refund,
    VOID_PAYMENT.fullname: payments.void,
    REPORT_OPERATION.fullname: payments.report,
    RECORD_SETTLEMENT.fullname: settlements.record,
}


class PaymentRules:
    """Pure; see `streams.runtime.decider.rules.Rules`."""

    version = 1
    tables: Mapping[str, Any] = TABLES

    def decide(self, state: State, command: Command) -> Any:
        return _DECIDES[command.record](state, command.row, command.time_ms)

    def expire(self, state: State, timer: Timer) -> Any:
        kind, book, name, *rest = timer.name.split("\n")
        match kind:
            case "hold":
                return transfers.resolve(state, book, name, timer.time_ms, "expired")
            case "query":
                return payments.query_due(state, book, name, rest[0], timer.time_ms)
            case "lapse":
                return payments.lapse(state, book, name, timer.time_ms)
            case _:
                return payments.close(state, book, name, timer.time_ms)

    def evolve(self, state: State, event: Event) -> None:
        row = event.row
        match event.record:
            case TRANSFER_RECORDED.fullname:
                _transfer(state, row)
            case PAYMENT_CHANGED.fullname:
                _payment(state, row, event.time_ms)
            case ACCOUNT_OPENED.fullname:
                _account(state, row)
            case _:
                _settlement(state, row)
        state["books"][row.book] = Book(row.number, row.recorded_at)

    def reply(self, event: Event) -> Reply:
        return replies.reply(event.record, event.row)


def _account(state: State, row: AccountOpened) -> None:
    low = high = None
    if row.overdraft is not None:
        low = -row.overdraft if row.side == "credit" else None
        high = row.overdraft if row.side == "debit" else None
    state["accounts"][row.book, row.account] = Account(row.currency, low, high)


def _transfer(state: State, row: TransferRecorded) -> None:
    ledger.evolve(state["accounts"], row.book, row.postings)
    if row.kind == "received":
        state["received"][clearing.received(row.book, row.counterpart, row.transfer_id)] = True
        return
    key, timer = (row.book, row.transfer_id), f"hold\n{row.book}\n{row.transfer_id}"
    if row.change == "held":
        expires = row.expires_at or 0
        state["holds"][key] = Hold(
            kind=row.kind,
            legs=tuple(row.legs),
            counterpart=row.counterpart,
            counterpart_account=row.counterpart_account,
            reference=row.reference,
            corrects=row.corrects,
            expires_ms=expires,
        )
        if expires:
            state.schedule(timer, expires)
        return
    held = state["holds"].get(key)
    if held is not None:
        del state["holds"][key]
        if held.expires_ms:
            state.cancel(timer)


def _payment(state: State, row: PaymentChanged, time_ms: int) -> None:
    ledger.evolve(state["accounts"], row.book, row.postings)
    key = (row.book, row.payment_id)
    name = f"{row.book}\n{row.payment_id}"
    payment: Payment | None = state["payments"].get(key)
    if payment is None:
        payment = Payment(
            row.order_id,
            row.account,
            row.source,
            row.method,
            row.capture,
            row.currency,
            row.amount,
            row.created_at,
        )
        state.schedule(f"close\n{name}", time_ms + payments.REFUNDABLE_MS)
    if row.change == "closed":
        del state["payments"][key]
        for timer in ("close", "lapse"):
            state.cancel(f"{timer}\n{name}")
        return
    for told in row.operations:
        asked = {name: value for name, value in told.items() if name != "ask"}
        operation = Operation(**asked)  # type: ignore[arg-type]
        known = find(payment, operation.operation_id)
        _watch(state, name, operation, time_ms, known is not None and known.status in OPEN)
        payment = with_operation(payment, operation)
    state["payments"][key] = payment
    _lapse(state, row, payment, time_ms)
    if not row.operations and time_ms >= row.created_at + payments.REFUNDABLE_MS:
        state.schedule(f"close\n{name}", time_ms + payments.DAY_MS)


def _watch(state: State, name: str, operation: Operation, time_ms: int, watched: bool) -> None:
    """An open operation is asked for until it is known."""
    timer = f"query\n{name}\n{operation.operation_id}"
    if operation.status in OPEN:
        state.schedule(timer, time_ms + payments.query_delay_ms(operation.queries))
    elif watched:
        state.cancel(timer)


def _lapse(state: State, row: PaymentChanged, payment: Payment, time_ms: int) -> None:
    """What is authorized is let go of after a while; where that did not work, a day later."""
    timer = f"lapse\n{row.book}\n{row.payment_id}"
    kinds = {told["kind"] for told in row.operations}
    if not stand(payment).held:
        state.cancel(timer)
    elif "authorize" in kinds:
        state.schedule(timer, time_ms + payments.AUTHORIZED_MS)
    elif not kinds or "void" in kinds:
        state.schedule(timer, time_ms + payments.DAY_MS)


def _settlement(state: State, row: SettlementRecorded) -> None:
    ledger.evolve(state["accounts"], row.book, row.postings)
    state["files"][row.book, row.file_id, row.chunk] = True
