"""Transfers between books: two writers, so two steps, over a clearing account in each.

    sender      account → $clearing:RECEIVER     held
    receiver    $clearing:SENDER → account       posted, or refused
    sender      account → $clearing:RECEIVER     posted, or voided

The receiver remembers what it has taken, so being told twice is harmless; the sender's hold has no
timeout, so nothing is let go that may have arrived. Between the steps the amount stands on neither
account; afterwards the two clearing accounts are each other's negative.
"""

from __future__ import annotations

from schemas.payments.events import Leg, ReceiveFromBook, SendToBook, TransferRecorded
from streams.payments.ledger import CLEARING, Draft, own, positive
from streams.payments.transfers import head, named, not_own
from streams.runtime.decider.rules import Rejected, State


def send(state: State, row: SendToBook, time_ms: int) -> TransferRecorded:
    """Hold an amount for another book."""
    positive(row.amount)
    named(row.transfer_id, row.to_book, row.to_account, row.account)
    if row.to_book == row.book:
        raise Rejected("same_book", "within a book this is a transfer", status=422)
    if (row.book, row.transfer_id) in state["holds"]:
        raise Rejected("exists", f"transfer {row.transfer_id} is held already")
    number, now = head(state, row.book, time_ms)
    clearing = own(CLEARING, row.currency, row.to_book)
    draft = Draft(state["accounts"], row.book)
    draft.hold(row.account, clearing, row.currency, row.amount)
    return TransferRecorded(
        book=row.book,
        number=number,
        recorded_at=now,
        transfer_id=row.transfer_id,
        change="held",
        kind="sent",
        effective_at=now,
        expires_at=None,
        legs=[_leg(row.account, clearing, row.currency, row.amount)],
        postings=draft.postings(),
        reference=row.reference,
        corrects="",
        counterpart=row.to_book,
        counterpart_account=row.to_account,
        detail="",
    )


def receive(state: State, row: ReceiveFromBook, time_ms: int) -> TransferRecorded:
    """Take the amount or refuse it; either way the sender is answered, by the same event. Only a
    book that is not there cannot record its refusal in numbers of its own, so it counts from 1.
    """
    if received(row.book, row.from_book, row.transfer_id) in state["received"]:
        raise Rejected("received", "this transfer was answered before")
    known = state["books"].get(row.book)
    number, now = (1, time_ms) if known is None else head(state, row.book, time_ms)
    clearing = own(CLEARING, row.currency, row.from_book)
    draft = Draft(state["accounts"], row.book)
    detail = ""
    try:
        not_own(row.account)
        draft.move(clearing, row.account, row.currency, positive(row.amount))
        postings = draft.postings()
    except Rejected as refusal:
        detail, postings = refusal.code, []
    return TransferRecorded(
        book=row.book,
        number=number,
        recorded_at=now,
        transfer_id=row.transfer_id,
        change="refused" if detail else "posted",
        kind="received",
        effective_at=now,
        expires_at=None,
        legs=[_leg(clearing, row.account, row.currency, row.amount)],
        postings=postings,
        reference=row.reference,
        corrects="",
        counterpart=row.from_book,
        counterpart_account="",
        detail=detail,
    )


def received(book: str, from_book: str, transfer_id: str) -> tuple[str, str, str]:
    """The key of what a book has answered."""
    return book, from_book, transfer_id


def _leg(debit: str, credit: str, currency: str, amount: int) -> Leg:
    return {
        "debit_account": debit,
        "credit_account": credit,
        "currency": currency,
        "amount": amount,
    }
