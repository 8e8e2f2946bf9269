"""What the writer of a partition remembers: accounts, holds, payments, by book and name.

All values are immutable and small. What is resolved is forgotten: a posted transfer leaves only
its postings on the log, a resolved hold and a closed payment leave nothing here.
"""

from __future__ import annotations

from typing import Final

import msgspec

from schemas.payments.events import Capture, Leg

BALANCE_MAX: Final = 10**18
"""Of one account; below 2**63 with room for a leg."""


class Account(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One account. `balance` is credits less debits; `low` and `high` bound what it may be.

    Holds count against the account that gives, at once: `balance - debits_held >= low` and
    `balance + credits_held <= high`, always.
    """

    currency: str
    low: int | None
    high: int | None
    balance: int = 0
    debits_held: int = 0
    credits_held: int = 0


class Book(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a book is: the number of its last event, and the latest time it has recorded."""

    number: int
    clock_ms: int


class Hold(msgspec.Struct, frozen=True, array_like=True):
    """A pending transfer. `counterpart` is the book that decides about it, or empty."""

    kind: str
    legs: tuple[Leg, ...]
    counterpart: str
    counterpart_account: str
    reference: str
    corrects: str
    expires_ms: int
    """0: never."""


class Operation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing asked of the provider; the fields are those of the event's `Operation`."""

    operation_id: str
    kind: str
    status: str
    amount: int
    psp_reference: str = ""
    reason: str = ""
    queries: int = 0
    requested_at: int = 0


class Payment(msgspec.Struct, frozen=True, array_like=True):
    """One payment and all of its operations, in the order in which they were asked for."""

    order_id: str
    account: str
    source: str
    method: str
    capture: Capture
    currency: str
    amount: int
    created_at: int
    operations: tuple[Operation, ...] = ()


TABLES: Final = {
    "books": Book,
    "accounts": Account,
    "holds": Hold,
    "payments": Payment,
    "received": bool,
    "files": bool,
}
"""Keys are tuples that begin with the book. `received` and `files` say what was taken in."""
