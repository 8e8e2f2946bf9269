"""Where books and payments are stored; `books`, `payments` and `reconciliation` read it.

`payments-books` (Cassandra) is a fold without memory: every row comes from one event alone, since
events carry the balance after them. What has been written about a time stays as it was known then:
`entries` are by the hour they were recorded in, `hours` has the balance at the end of each, and
`backdated` finds what was recorded later than it counts. So a balance as of any time, as known at
any offset, is three reads however long the account's history is.
"""

from __future__ import annotations

import polars as pl

from streams.runtime.sink import ReadModel, Table

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

ACCOUNTS = Table(
    "accounts",
    key={"book": pl.String, "account": pl.String},
    values={
        "currency": pl.String,
        "side": pl.String,
        "overdraft": pl.Int64,
        "opened_ms": pl.Int64,
    },
    bucket=("book",),
)
"""Accounts that were opened; those that a book keeps for itself are only in `balances`."""

BALANCES = Table(
    "balances",
    key={"book": pl.String, "account": pl.String},
    values={
        "currency": pl.String,
        "balance": pl.Int64,
        "debits_held": pl.Int64,
        "credits_held": pl.Int64,
        "offset": pl.Int64,
    },
    bucket=("book",),
)
"""How every account stands, since the event at `offset`."""

HOURS = Table(
    "hours",
    key={"book": pl.String, "account": pl.String, "hour_ms": pl.Int64},
    values={"balance": pl.Int64, "offset": pl.Int64},
    bucket=("book", "account"),
)
"""Hours in which something was recorded on an account, with the balance and offset at their end."""

_ENTRY = {
    "number": pl.Int64,
    "currency": pl.String,
    "amount": pl.Int64,
    "balance": pl.Int64,
    "recorded_ms": pl.Int64,
    "kind": pl.String,
    "of": pl.String,
    "reference": pl.String,
}

ENTRIES = Table(
    "entries",
    key={
        "book": pl.String,
        "account": pl.String,
        "hour_ms": pl.Int64,
        "offset": pl.Int64,
    },
    values={"effective_ms": pl.Int64, **_ENTRY},
    bucket=("book", "account", "hour_ms"),
    append=True,
)
"""What changed an account's balance, by the hour it was recorded in. `kind` and `of` say by what:
a transfer, a conversion, a payment, a settlement file, and its id.
"""

BACKDATED = Table(
    "backdated",
    key={
        "book": pl.String,
        "account": pl.String,
        "effective_ms": pl.Int64,
        "offset": pl.Int64,
    },
    values=_ENTRY,
    bucket=("book", "account"),
    append=True,
)
"""Those entries again that count since an earlier hour than they were recorded in."""

TRANSFERS = Table(
    "transfers",
    key={"book": pl.String, "transfer_id": pl.String},
    values={
        "kind": pl.String,
        "state": pl.String,
        "number": pl.Int64,
        "effective_ms": pl.Int64,
        "recorded_ms": pl.Int64,
        "expires_ms": pl.Int64,
        "debit_accounts": pl.List(pl.String),
        "credit_accounts": pl.List(pl.String),
        "currencies": pl.List(pl.String),
        "amounts": pl.List(pl.Int64),
        "reference": pl.String,
        "corrects": pl.String,
        "counterpart": pl.String,
        "counterpart_account": pl.String,
        "detail": pl.String,
    },
    bucket=("book", "transfer_id"),
)
"""How every transfer ended, or that it is held."""

PAYMENTS = Table(
    "payments",
    key={"payment_id": pl.String},
    values={
        "book": pl.String,
        "order_id": pl.String,
        "account": pl.String,
        "currency": pl.String,
        "amount": pl.Int64,
        "created_ms": pl.Int64,
    },
    bucket=("payment_id",),
)
"""What every payment is for: all that never changes of it. How it stands is in `operations`."""

OPERATIONS = Table(
    "operations",
    key={"payment_id": pl.String, "operation_id": pl.String},
    values={
        "kind": pl.String,
        "status": pl.String,
        "amount": pl.Int64,
        "psp_reference": pl.String,
        "reason": pl.String,
        "requested_ms": pl.Int64,
        "changed_ms": pl.Int64,
        "queries": pl.Int32,
        "number": pl.Int64,
        "state": pl.String,
        "authorized": pl.Int64,
        "captured": pl.Int64,
        "refunded": pl.Int64,
    },
    bucket=("payment_id",),
)
"""What was asked of the provider for a payment, what came of it, and how the whole payment stood
after that event (`number`). So the operations of a payment and how it stands are of one bucket,
which is written and read as one: in two tables a reader could see the one before an event and the
other after it.
"""

DONE = Table(
    "done",
    key={"book": pl.String, "day_ms": pl.Int64, "operation_id": pl.String},
    values={
        "payment_id": pl.String,
        "kind": pl.String,
        "currency": pl.String,
        "amount": pl.Int64,
        "psp_reference": pl.String,
        "done_ms": pl.Int64,
    },
    bucket=("book", "day_ms"),
)
"""Captures and refunds that the provider has done, by the day we learnt of it."""

LINES = Table(
    "lines",
    key={"book": pl.String, "file_id": pl.String, "line": pl.Int32},
    values={
        "operation_id": pl.String,
        "kind": pl.String,
        "currency": pl.String,
        "amount": pl.Int64,
        "fee": pl.Int64,
        "psp_reference": pl.String,
        "period_from_ms": pl.Int64,
        "period_to_ms": pl.Int64,
    },
    bucket=("book", "file_id"),
    append=True,
)
"""The lines of settlement files."""

SETTLED = Table(
    "settled",
    key={"operation_id": pl.String, "file_id": pl.String, "line": pl.Int32},
    values={"book": pl.String},
    bucket=("operation_id",),
    append=True,
)
"""In which files an operation is."""

FILES = Table(
    "files",
    key={"book": pl.String, "file_id": pl.String, "chunk": pl.Int32},
    values={
        "lines": pl.Int64,
        "period_from_ms": pl.Int64,
        "period_to_ms": pl.Int64,
        "recorded_ms": pl.Int64,
    },
    bucket=("book",),
    append=True,
)
"""The parts of settlement files that were taken in."""

BOOKS = ReadModel(
    "payments-books",
    (
        *(ACCOUNTS, BALANCES, HOURS, ENTRIES, BACKDATED, TRANSFERS),
        *(PAYMENTS, OPERATIONS, DONE, LINES, SETTLED, FILES),
    ),
)
