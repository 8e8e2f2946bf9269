"""How a payment moves: pure functions on `Payment`, without accounts.

A payment is its operations. Each has a status that only ever rises:

    requested → unknown → failed → succeeded → reversed

so a report that does not raise it is old news, and any order and repetition of the same reports
ends in the same payment. (Success is above failure: where the provider says both, the money has
moved.) State and amounts of the payment, and what it means for the ledger, are functions of its
operations; an event books the difference between before and after.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from streams.payments.state import Operation, Payment

RANKS: Final = {"requested": 0, "unknown": 1, "failed": 2, "succeeded": 3, "reversed": 4}
OPEN: Final = ("requested", "unknown")
"""The provider's answer is still to come."""
WALLET: Final = "wallet:"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a payment has come to, in minor units.

    - `authorized`: by the provider, if it did; `released`: nothing more can be captured.
    - `captured`, `refunded`: done. `capturing`, `refunding`: asked for.
    """

    authorized: int
    captured: int
    refunded: int
    capturing: int
    refunding: int
    released: bool
    voiding: bool

    @property
    def capturable(self) -> int:
        """What may still be asked for."""
        if self.released or self.voiding:
            return 0
        return self.authorized - self.captured - self.capturing

    @property
    def refundable(self) -> int:
        """What may still be given back."""
        return self.captured - self.refunded - self.refunding


@dataclass(frozen=True, slots=True)
class Stand:
    """What a payment means for the accounts: `held` from the source for the payee, `booked` from
    the source to the payee, `returning` held from the payee for the source.
    """

    held: int = 0
    booked: int = 0
    returning: int = 0


def figures(payment: Payment) -> Figures:
    """The amounts of a payment."""
    done = {"capture": 0, "refund": 0}
    asked = {"capture": 0, "refund": 0}
    authorized, released, voiding = 0, False, False
    for operation in payment.operations:
        kind, status = operation.kind, operation.status
        if kind == "authorize":
            authorized = operation.amount if status in ("succeeded", "reversed") else 0
            released |= status in ("failed", "reversed")
        elif kind == "void":
            released |= status == "succeeded"
            voiding |= status in OPEN
        elif status == "succeeded":
            done[kind] += operation.amount
        elif status in OPEN:
            asked[kind] += operation.amount
    return Figures(
        authorized,
        done["capture"],
        done["refund"],
        asked["capture"],
        asked["refund"],
        released,
        voiding,
    )


def stand(payment: Payment) -> Stand:
    """What the payment means for the accounts now."""
    found = figures(payment)
    held = 0 if found.released else max(0, found.authorized - found.captured)
    return Stand(held, found.captured - found.refunded, found.refunding)


def state_of(payment: Payment) -> str:
    """The state in one word."""
    found = figures(payment)
    if found.refunded:
        return "refunded" if found.refunded >= found.captured else "partially_refunded"
    if found.captured:
        whole = found.released or found.captured >= found.authorized
        return "captured" if whole else "partially_captured"
    match payment.operations[0].status:
        case "failed":
            return "failed"
        case "succeeded":
            return "voided" if found.released else "authorized"
        case "reversed":
            return "voided"
        case _:
            return "pending"


def find(payment: Payment, operation_id: str) -> Operation | None:
    """The operation of that id."""
    for operation in payment.operations:
        if operation.operation_id == operation_id:
            return operation
    return None


def with_operation(payment: Payment, operation: Operation) -> Payment:
    """The payment with an operation added, or put in the place of its earlier self."""
    known = payment.operations
    for at, old in enumerate(known):
        if old.operation_id == operation.operation_id:
            return _replaced(payment, (*known[:at], operation, *known[at + 1 :]))
    return _replaced(payment, (*known, operation))


def by_wallet(payment: Payment) -> bool:
    """Whether it is paid from an account of the book, without a provider."""
    return payment.method.startswith(WALLET)


def _replaced(payment: Payment, operations: tuple[Operation, ...]) -> Payment:
    return msgspec.structs.replace(payment, operations=operations)
