"""Payments: what a command or a timer leads to, as an event with its postings.

The provider is asked only by what an event says (`ask`): to do an operation (`call`), or how one
stands (`query`). No answer is an answer too: the operation is `unknown`, and a timer asks for it
until it is known; nothing is ever asked for again under another id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from schemas.payments import events
from schemas.payments.cards import holds_card_number
from schemas.payments.events import (
    CapturePayment,
    CreatePayment,
    PaymentChange,
    PaymentChanged,
    Posting,
    RefundPayment,
    ReportOperation,
    VoidPayment,
)
from streams.payments.ledger import OWN, PROVIDER, Draft, own, positive
from streams.payments.machine import (
    OPEN,
    RANKS,
    WALLET,
    by_wallet,
    figures,
    find,
    stand,
    state_of,
    with_operation,
)
from streams.payments.state import Operation, Payment
from streams.payments.transfers import head, named
from streams.runtime.decider.rules import Rejected, State

DAY_MS: Final = 24 * 3_600_000
AUTHORIZED_MS: Final = 7 * DAY_MS
"""What is not captured by then is let go; cards keep an authorization about so long."""
REFUNDABLE_MS: Final = 180 * DAY_MS
"""Then a payment is closed and forgotten by its writer; its record stays readable."""
QUERIES_MS: Final = (15_000, 45_000, 240_000, 900_000, 3_600_000, 6 * 3_600_000, DAY_MS)
"""How long after an operation was asked for, or last queried, its outcome is asked for. The first
is longer than a call may take (`PspSettings.timeout_ms`), so that it does not overtake it.
"""
OPERATIONS_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Case:
    """A payment as it stands when something is decided about it."""

    state: State
    book: str
    payment_id: str
    payment: Payment
    time_ms: int

    def ask(self, operation: Operation, change: PaymentChange) -> PaymentChanged:
        """The event that asks the provider; what comes from a wallet is done at once."""
        _, now = head(self.state, self.book, self.time_ms)
        operation = msgspec.structs.replace(operation, requested_at=now)
        if not by_wallet(self.payment):
            after = with_operation(self.payment, operation)
            return self.event(after, [_told(operation, "call")], change)
        done = [msgspec.structs.replace(operation, status="succeeded")]
        if change == "created" and self.payment.capture == "automatic":
            done.append(
                msgspec.structs.replace(
                    done[0], operation_id=f"{self.payment_id}.capture", kind="capture"
                )
            )
        after = self.payment
        for one in done:
            after = with_operation(after, one)
        return self.event(after, [_told(one, "") for one in done], change)

    def event(
        self, after: Payment, changed: Sequence[events.Operation], change: PaymentChange
    ) -> PaymentChanged:
        """The event, with the postings that lead from one stand to the other."""
        number, now = head(self.state, self.book, self.time_ms)
        found = figures(after)
        return PaymentChanged(
            book=self.book,
            number=number,
            recorded_at=now,
            payment_id=self.payment_id,
            change=change,
            state=state_of(after),
            order_id=after.order_id,
            account=after.account,
            source=after.source,
            method=after.method,
            capture=after.capture,
            currency=after.currency,
            amount=after.amount,
            authorized=found.authorized,
            captured=found.captured,
            refunded=found.refunded,
            created_at=after.created_at,
            operations=list(changed),
            postings=self._postings(after),
        )

    def _postings(self, after: Payment) -> list[Posting]:
        old, new = stand(self.payment), stand(after)
        draft = Draft(self.state["accounts"], self.book)
        payee, source, currency = after.account, after.source, after.currency
        if new.held != old.held:
            draft.hold(source, payee, currency, new.held - old.held)
        if new.returning != old.returning:
            draft.hold(payee, source, currency, new.returning - old.returning)
        if new.booked != old.booked:
            draft.move(source, payee, currency, new.booked - old.booked)
        return draft.postings()


def create(state: State, row: CreatePayment, time_ms: int) -> PaymentChanged:
    """A new payment, with the authorization asked for. From a wallet it is given here, or the
    payment is refused.
    """
    positive(row.amount)
    named(row.payment_id)
    if not row.payment_id.startswith(f"{row.book}."):
        raise Rejected("bad_name", "a payment's id begins with its book and a dot", status=422)
    if (row.book, row.payment_id) in state["payments"]:
        raise Rejected("exists", f"payment {row.payment_id} is there already")
    if holds_card_number(row.method):
        raise Rejected("card_number", "send a token, never the number of a card", status=422)
    payee = state["accounts"].get((row.book, row.account))
    if payee is None or row.account.startswith(OWN):
        raise Rejected("no_account", f"there is no account {row.account[:40]}", status=404)
    if payee.currency != row.currency:
        raise Rejected("wrong_currency", f"account {row.account} holds {payee.currency}")
    if payee.high is not None:
        raise Rejected("limited", "payments go to accounts that can take any amount", status=422)
    source = own(PROVIDER, row.currency)
    if row.method.startswith(WALLET):
        source = row.method.removeprefix(WALLET)
        named(source)
        if source == row.account:
            raise Rejected("bad_legs", f"account {source} cannot pay itself", status=422)
    _, now = head(state, row.book, time_ms)
    payment = Payment(
        order_id=row.order_id,
        account=row.account,
        source=source,
        method=row.method,
        capture=row.capture,
        currency=row.currency,
        amount=row.amount,
        created_at=now,
    )
    operation = Operation(f"{row.payment_id}.auth", "authorize", "requested", row.amount)
    return Case(state, row.book, row.payment_id, payment, time_ms).ask(operation, "created")


def capture(state: State, row: CapturePayment, time_ms: int) -> PaymentChanged:
    """Ask for some of what is authorized, at most what is left of it."""
    case = _found(state, row.book, row.payment_id, time_ms)
    left = figures(case.payment).capturable
    operation = _new(case.payment, row.operation_id, "capture", row.amount, left)
    return case.ask(operation, "capture_requested")


def refund(state: State, row: RefundPayment, time_ms: int) -> PaymentChanged:
    """Ask for some of what was captured to be given back; the payee must have it."""
    case = _found(state, row.book, row.payment_id, time_ms)
    left = figures(case.payment).refundable
    operation = _new(case.payment, row.operation_id, "refund", row.amount, left)
    return case.ask(operation, "refund_requested")


def void(state: State, row: VoidPayment, time_ms: int) -> PaymentChanged:
    """Ask for what is authorized and not captured to be let go."""
    return _void(_found(state, row.book, row.payment_id, time_ms), row.operation_id)


def _void(case: Case, operation_id: str) -> PaymentChanged:
    found = figures(case.payment)
    if found.capturing:
        raise Rejected("capturing", "a capture is on its way")
    operation = _new(case.payment, operation_id, "void", None, found.capturable)
    return case.ask(operation, "void_requested")


def report(state: State, row: ReportOperation, time_ms: int) -> PaymentChanged:
    """What the provider says. Raises `Rejected` for what is no news (`stale`), for an operation
    that is not ours, and for an outcome that cannot be (`differs`): reconciliation shows those.
    """
    case = _found(state, row.book, row.payment_id, time_ms)
    payment = case.payment
    operation = find(payment, row.operation_id)
    if operation is None or by_wallet(payment):
        raise Rejected("no_operation", "no such operation was asked for", status=404)
    if RANKS[row.status] <= RANKS[operation.status]:
        raise Rejected("stale", f"the operation is {operation.status}")
    amount = operation.amount if row.amount is None else row.amount
    if not 0 < amount <= operation.amount or row.currency not in ("", payment.currency):
        raise Rejected("differs", "another amount or currency than asked for")
    done = row.status in ("succeeded", "reversed")
    told = msgspec.structs.replace(
        operation,
        status=row.status,
        amount=amount if done else operation.amount,
        psp_reference=row.psp_reference or operation.psp_reference,
        reason=row.reason,
    )
    after, changed = with_operation(payment, told), [_told(told, "")]
    first = operation.kind == "authorize" and row.status == "succeeded"
    if first and payment.capture == "automatic":
        _, now = head(state, row.book, time_ms)
        follow = f"{row.payment_id}.capture"
        asked = Operation(follow, "capture", "requested", amount, requested_at=now)
        after = with_operation(after, asked)
        changed.append(_told(asked, "call"))
    found = figures(after)
    if found.captured > found.authorized or found.refunded + found.refunding > found.captured:
        raise Rejected("differs", "more than was authorized, or than was captured")
    return case.event(after, changed, "reported")


def query_due(
    state: State, book: str, payment_id: str, operation_id: str, time_ms: int
) -> PaymentChanged:
    """An operation is still open: ask the provider how it stands."""
    case = Case(state, book, payment_id, state["payments"][book, payment_id], time_ms)
    operation = find(case.payment, operation_id)
    if operation is None:
        raise KeyError(operation_id)
    asked = msgspec.structs.replace(operation, queries=operation.queries + 1)
    after = with_operation(case.payment, asked)
    return case.event(after, [_told(asked, "query")], "query_due")


def lapse(state: State, book: str, payment_id: str, time_ms: int) -> PaymentChanged:
    """The authorization has run its time: let go of what was not captured. Where it cannot be
    now, an event without a change says so.
    """
    case = Case(state, book, payment_id, state["payments"][book, payment_id], time_ms)
    try:
        return _void(case, f"{payment_id}.lapse{len(case.payment.operations)}")
    except Rejected:
        return case.event(case.payment, (), "reported")


def close(state: State, book: str, payment_id: str, time_ms: int) -> PaymentChanged:
    """Nothing more can come: the payment is forgotten, unless an operation is still open."""
    payment: Payment = state["payments"][book, payment_id]
    held = stand(payment)
    waits = held.held or held.returning or any(o.status in OPEN for o in payment.operations)
    case = Case(state, book, payment_id, payment, time_ms)
    return case.event(payment, (), "reported" if waits else "closed")


def query_delay_ms(queries: int) -> int:
    """How long after it was asked for, or last queried, an operation is queried again."""
    return QUERIES_MS[min(queries, len(QUERIES_MS) - 1)]


def _found(state: State, book: str, payment_id: str, time_ms: int) -> Case:
    payment = state["payments"].get((book, payment_id))
    if payment is None:
        raise Rejected("no_payment", "there is no such payment, or it is closed", status=404)
    return Case(state, book, payment_id, payment, time_ms)


_ABLE: Final = {"capture": "capturable", "refund": "refundable", "void": "voidable"}


def _new(
    payment: Payment, operation_id: str, kind: str, amount: int | None, left: int
) -> Operation:
    named(operation_id)
    if find(payment, operation_id) is not None:
        raise Rejected("exists", "this operation was asked for already")
    if len(payment.operations) >= OPERATIONS_MAX:
        raise Rejected("too_many", f"a payment has up to {OPERATIONS_MAX} operations")
    wanted = left if amount is None else positive(amount)
    if not 0 < wanted <= left:
        raise Rejected(f"not_{_ABLE[kind]}", f"{left} can be asked for, not {wanted}")
    return Operation(operation_id, kind, "requested", wanted)


def _told(operation: Operation, ask: str) -> events.Operation:
    return {
        "operation_id": operation.operation_id,
        "kind": operation.kind,
        "status": operation.status,
        "amount": operation.amount,
        "psp_reference": operation.psp_reference,
        "reason": operation.reason,
        "ask": ask,
        "queries": operation.queries,
        "requested_at": operation.requested_at,
    }
