"""Accounts and transfers: what a command leads to, as an event with its postings.

A transfer never changes. A hold is resolved once: posted, voided or expired; then it is forgotten,
so a second try finds nothing. A transfer between books is a hold here, over the clearing account
of the other book, which only that book's answer resolves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from schemas.payments.currencies import EXPONENTS, converted
from schemas.payments.events import (
    AccountOpened,
    ConvertCurrency,
    Leg,
    OpenAccount,
    PostTransfer,
    RecordTransfer,
    SettleSent,
    TransferChange,
    TransferRecorded,
    VoidTransfer,
)
from streams.payments.ledger import EXCHANGE, OWN, Draft, checked, own, positive
from streams.payments.state import BALANCE_MAX, Hold
from streams.runtime.decider.rules import Rejected, State

TIMEOUT_MAX_MS: Final = 366 * 24 * 3_600_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}", re.ASCII)


def named(*names: str) -> None:
    """Refuse names that could not be told apart later: they go into timers and paths."""
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise Rejected("bad_name", f"{name[:40]!r} is no name", status=422)


def not_own(*accounts: str) -> None:
    """Refuse accounts that a book keeps for itself."""
    for account in accounts:
        if account.startswith(OWN):
            raise Rejected("own_account", f"account {account} is the book's own", status=403)


def head(state: State, book: str, time_ms: int) -> tuple[int, int]:
    """Number and time of the book's next event; raises `Rejected` where there is no such book."""
    known = state["books"].get(book)
    if known is None:
        raise Rejected("no_book", f"there is no book {book[:40]}", status=404)
    return known.number + 1, max(known.clock_ms, time_ms)


def open_account(state: State, row: OpenAccount, time_ms: int) -> AccountOpened:
    """The first account of a book makes the book."""
    named(row.book, row.account)
    if "." in row.book:
        raise Rejected("bad_name", "the name of a book has no dot", status=422)
    if row.currency not in EXPONENTS:
        raise Rejected("no_currency", f"{row.currency[:8]} is no currency", status=422)
    if row.overdraft is not None and not 0 <= row.overdraft < BALANCE_MAX:
        raise Rejected("bad_amount", "the overdraft is out of range", status=422)
    if (row.book, row.account) in state["accounts"]:
        raise Rejected("exists", f"account {row.account} is there already")
    new = state["books"].get(row.book) is None
    number, now = (1, time_ms) if new else head(state, row.book, time_ms)
    return AccountOpened(row.book, number, now, row.account, row.currency, row.side, row.overdraft)


def record(state: State, row: RecordTransfer, time_ms: int) -> TransferRecorded:
    """A transfer, or a hold for one."""
    legs = checked(row.legs)
    for leg in legs:
        not_own(leg["debit_account"], leg["credit_account"])
    number, now = head(state, row.book, time_ms)
    effective = now if row.effective_at is None else row.effective_at
    if effective > now:
        raise Rejected("effective_later", "a transfer counts from now or from earlier", status=422)
    draft = Draft(state["accounts"], row.book)
    if row.hold:
        return _held(state, row, draft, legs, (number, now))
    for leg in legs:
        draft.move(leg["debit_account"], leg["credit_account"], leg["currency"], leg["amount"])
    return TransferRecorded(
        row.book,
        number,
        now,
        row.transfer_id,
        "posted",
        "transfer",
        effective,
        None,
        legs,
        draft.postings(),
        row.reference,
        row.corrects,
        "",
        "",
        "",
    )


def _held(
    state: State, row: RecordTransfer, draft: Draft, legs: list[Leg], at: tuple[int, int]
) -> TransferRecorded:
    number, now = at
    if not 0 <= row.timeout_ms <= TIMEOUT_MAX_MS:
        raise Rejected("bad_timeout", f"a hold lasts up to {TIMEOUT_MAX_MS} ms", status=422)
    if row.effective_at is not None:
        raise Rejected("effective_later", "a hold counts when it is posted", status=422)
    _unused(state, row.book, row.transfer_id)
    for leg in legs:
        draft.hold(leg["debit_account"], leg["credit_account"], leg["currency"], leg["amount"])
    expires = now + row.timeout_ms if row.timeout_ms else None
    return TransferRecorded(
        book=row.book,
        number=number,
        recorded_at=now,
        transfer_id=row.transfer_id,
        change="held",
        kind="transfer",
        effective_at=now,
        expires_at=expires,
        legs=legs,
        postings=draft.postings(),
        reference=row.reference,
        corrects=row.corrects,
        counterpart="",
        counterpart_account="",
        detail="",
    )


def post(state: State, row: PostTransfer, time_ms: int) -> TransferRecorded:
    """Post a hold, or a part of it when it has one leg; the rest is let go."""
    hold = _pending(state, row.book, row.transfer_id)
    if hold.counterpart:
        raise Rejected("in_clearing", f"book {hold.counterpart} decides about this transfer")
    if row.amount is None:
        posted = hold.legs
    else:
        if len(hold.legs) > 1:
            raise Rejected("bad_amount", "a hold of several legs is posted whole", status=422)
        if positive(row.amount) > hold.legs[0]["amount"]:
            raise Rejected("bad_amount", "more than is held", status=422)
        posted = ({**hold.legs[0], "amount": row.amount},)
    return resolve(state, row.book, row.transfer_id, time_ms, "posted", posted=posted)


def void(state: State, row: VoidTransfer, time_ms: int) -> TransferRecorded:
    """Let go of a hold."""
    hold = _pending(state, row.book, row.transfer_id)
    if hold.counterpart:
        raise Rejected("in_clearing", f"book {hold.counterpart} decides about this transfer")
    return resolve(state, row.book, row.transfer_id, time_ms, "voided")


def settle_sent(state: State, row: SettleSent, time_ms: int) -> TransferRecorded:
    """The other book has answered: post what it took, let go of what it refused."""
    hold = _pending(state, row.book, row.transfer_id)
    if not hold.counterpart:
        raise Rejected("not_sent", "this hold is no transfer between books")
    if row.received:
        return resolve(state, row.book, row.transfer_id, time_ms, "posted", posted=hold.legs)
    return resolve(state, row.book, row.transfer_id, time_ms, "voided", detail=row.reason)


def resolve(
    state: State,
    book: str,
    transfer_id: str,
    time_ms: int,
    change: TransferChange,
    *,
    posted: Iterable[Leg] = (),
    detail: str = "",
) -> TransferRecorded:
    """End a hold: let go of all of it, and move what is `posted`."""
    hold = _pending(state, book, transfer_id)
    number, now = head(state, book, time_ms)
    draft = Draft(state["accounts"], book)
    for leg in hold.legs:
        draft.hold(leg["debit_account"], leg["credit_account"], leg["currency"], -leg["amount"])
    posted = list(posted)
    for leg in posted:
        draft.move(leg["debit_account"], leg["credit_account"], leg["currency"], leg["amount"])
    return TransferRecorded(
        book=book,
        number=number,
        recorded_at=now,
        transfer_id=transfer_id,
        change=change,
        kind="sent" if hold.kind == "sent" else "transfer",
        effective_at=now,
        expires_at=None,
        legs=posted or list(hold.legs),
        postings=draft.postings(),
        reference=hold.reference,
        corrects=hold.corrects,
        counterpart=hold.counterpart,
        counterpart_account=hold.counterpart_account,
        detail=detail,
    )


def convert(state: State, row: ConvertCurrency, time_ms: int) -> TransferRecorded:
    """Two legs, four postings: what is sold to the exchange account of its currency, what is
    bought from that of the other.
    """
    positive(row.sell_amount)
    not_own(row.from_account, row.to_account)
    if row.sell_currency == row.buy_currency:
        raise Rejected("same_currency", "nothing to convert", status=422)
    try:
        bought = converted(row.sell_amount, row.sell_currency, row.rate, row.buy_currency)
    except ValueError as error:
        raise Rejected("bad_rate", str(error), status=422) from None
    sold = own(EXCHANGE, row.sell_currency), own(EXCHANGE, row.buy_currency)
    legs: list[Leg] = [
        {
            "debit_account": row.from_account,
            "credit_account": sold[0],
            "currency": row.sell_currency,
            "amount": row.sell_amount,
        },
        {
            "debit_account": sold[1],
            "credit_account": row.to_account,
            "currency": row.buy_currency,
            "amount": positive(bought),
        },
    ]
    number, now = head(state, row.book, time_ms)
    draft = Draft(state["accounts"], row.book)
    for leg in legs:
        draft.move(leg["debit_account"], leg["credit_account"], leg["currency"], leg["amount"])
    return TransferRecorded(
        book=row.book,
        number=number,
        recorded_at=now,
        transfer_id=row.transfer_id,
        change="posted",
        kind="conversion",
        effective_at=now,
        expires_at=None,
        legs=legs,
        postings=draft.postings(),
        reference=row.reference,
        corrects="",
        counterpart="",
        counterpart_account="",
        detail=row.rate,
    )


def _pending(state: State, book: str, transfer_id: str) -> Hold:
    hold: Hold | None = state["holds"].get((book, transfer_id))
    if hold is None:
        raise Rejected("not_pending", "there is no such hold, or it is resolved")
    return hold


def _unused(state: State, book: str, transfer_id: str) -> None:
    named(transfer_id)
    if (book, transfer_id) in state["holds"]:
        raise Rejected("exists", f"transfer {transfer_id} is held already")
