"""Settlement files: what the provider says it pays out, booked line by line.

A part of a file is taken once. Every line is booked as the provider says, also one that matches
nothing of ours: what then is left on the provider's account is what reconciliation explains.
"""

from __future__ import annotations

from typing import Final

from schemas.payments.currencies import AMOUNT_MAX, EXPONENTS
from schemas.payments.events import RecordSettlement, SettlementRecorded
from streams.payments.ledger import BANK, FEES, PROVIDER, Draft, own, positive
from streams.payments.transfers import head, named
from streams.runtime.decider.rules import Rejected, State

LINES_MAX: Final = 1_000


def record(state: State, row: RecordSettlement, time_ms: int) -> SettlementRecorded:
    """Book a part of a file: the provider's debt becomes money at the bank, less its fees."""
    named(row.file_id)
    if (row.book, row.file_id, row.chunk) in state["files"]:
        raise Rejected("exists", f"part {row.chunk} of {row.file_id} was taken before")
    if not 0 < len(row.lines) <= LINES_MAX:
        raise Rejected("bad_file", f"a part has from 1 to {LINES_MAX} lines", status=422)
    number, now = head(state, row.book, time_ms)
    draft = Draft(state["accounts"], row.book)
    for line in row.lines:
        currency, fee = line["currency"], line["fee"]
        if currency not in EXPONENTS or line["kind"] not in ("capture", "refund"):
            raise Rejected("bad_file", f"line {line['line']}: unknown currency or kind", status=422)
        if abs(fee) > AMOUNT_MAX:
            raise Rejected("bad_file", f"line {line['line']}: such a fee", status=422)
        provider, bank = own(PROVIDER, currency), own(BANK, currency)
        amount = positive(line["amount"])
        draft.move(bank, provider, currency, amount if line["kind"] == "capture" else -amount)
        draft.move(own(FEES, currency), bank, currency, fee)
    return SettlementRecorded(
        book=row.book,
        number=number,
        recorded_at=now,
        file_id=row.file_id,
        chunk=row.chunk,
        period_from=row.period_from,
        period_to=row.period_to,
        lines=row.lines,
        postings=draft.postings(),
    )
