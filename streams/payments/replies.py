"""What the sender of a command is told: the thing that it made or changed, as JSON.

Amounts are integers of minor units; times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from schemas.payments.events import (
    ACCOUNT_OPENED,
    PAYMENT_CHANGED,
    SETTLEMENT_RECORDED,
    TRANSFER_RECORDED,
    AccountOpened,
    PaymentChanged,
    Posting,
    SettlementRecorded,
    TransferRecorded,
)
from streams.runtime.decider.rules import Reply


def reply(record: str, row: Any) -> Reply:
    """The answer that goes with an event."""
    return _REPLIES[record](row)


def _account(row: AccountOpened) -> Reply:
    return Reply(
        201,
        {
            "book": row.book,
            "account": row.account,
            "currency": row.currency,
            "side": row.side,
            "overdraft": row.overdraft,
            "number": row.number,
            "recorded_at": row.recorded_at,
        },
    )


def _transfer(row: TransferRecorded) -> Reply:
    return Reply(
        201 if row.change in ("held", "posted") else 200,
        {
            "book": row.book,
            "transfer_id": row.transfer_id,
            "kind": row.kind,
            "state": row.change,
            "number": row.number,
            "recorded_at": row.recorded_at,
            "effective_at": row.effective_at,
            "expires_at": row.expires_at,
            "legs": row.legs,
            "postings": _postings(row.postings),
            "reference": row.reference,
            "corrects": row.corrects,
            "counterpart": row.counterpart,
            "detail": row.detail,
        },
    )


def _payment(row: PaymentChanged) -> Reply:
    return Reply(
        201 if row.change == "created" else 200,
        {
            "book": row.book,
            "payment_id": row.payment_id,
            "order_id": row.order_id,
            "state": row.state,
            "account": row.account,
            "currency": row.currency,
            "amount": row.amount,
            "authorized": row.authorized,
            "captured": row.captured,
            "refunded": row.refunded,
            "created_at": row.created_at,
            "operations": [
                {
                    "operation_id": told["operation_id"],
                    "kind": told["kind"],
                    "status": told["status"],
                    "amount": told["amount"],
                    "reason": told["reason"],
                }
                for told in row.operations
            ],
        },
    )


def _settlement(row: SettlementRecorded) -> Reply:
    return Reply(
        201,
        {
            "book": row.book,
            "file_id": row.file_id,
            "chunk": row.chunk,
            "lines": len(row.lines),
            "postings": _postings(row.postings),
        },
    )


def _postings(postings: Sequence[Posting]) -> list[dict[str, Any]]:
    return [
        {
            "account": posting["account"],
            "currency": posting["currency"],
            "amount": posting["amount"],
            "balance": posting["balance"],
        }
        for posting in postings
    ]


_REPLIES: Final[Mapping[str, Callable[[Any], Reply]]] = {
    ACCOUNT_OPENED.fullname: _account,
    TRANSFER_RECORDED.fullname: _transfer,
    PAYMENT_CHANGED.fullname: _payment,
    SETTLEMENT_RECORDED.fullname: _settlement,
}
