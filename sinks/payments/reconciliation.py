"""Settlement files against our own operations: matched, missing here, missing there, different.

`compare` is pure, so a report is the same whenever it is made of the same rows, and can be made
again as often as one likes: later operations and files only ever change what they are about.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

Status = Literal["matched", "differs", "missing_here", "missing_there"]

STATUSES: Final[tuple[Status, ...]] = ("matched", "differs", "missing_here", "missing_there")


@dataclass(frozen=True)
class Tariff:
    """What the provider may keep of a capture: a share in hundredths of a percent, and a fixed
    amount of minor units. Halves go to the even neighbour; one unit off is not different.
    """

    share_bp: int
    fixed: int

    def fee(self, amount: int) -> int:
        """The fee of an amount."""
        quotient, rest = divmod(amount * self.share_bp, 10_000)
        up = rest > 5_000 or (rest == 5_000 and quotient % 2 == 1)
        return quotient + up + self.fixed


@dataclass(frozen=True)
class Finding:
    """One operation: what we say, what the file says (None where it is missing), and the verdict.
    `what` names the fields that differ, or `twice` for an operation with two lines.
    """

    status: Status
    operation_id: str
    kind: str
    line: int | None
    our_currency: str | None
    our_amount: int | None
    their_currency: str | None
    their_amount: int | None
    fee: int | None
    what: str


def compare(
    lines: pl.DataFrame, ours: pl.DataFrame, settled_elsewhere: set[str], tariff: Tariff | None
) -> list[Finding]:
    """Every line of a file, and every operation of its period that no file has.

    `lines` has operation_id, kind, line, currency, amount, fee; `ours` operation_id, kind,
    currency, amount, and `expected`: whether the operation falls into the file's period. Ordered
    by line, then by operation.
    """
    known = {row["operation_id"]: row for row in ours.to_dicts()}
    found: list[Finding] = []
    seen: set[str] = set()
    for row in lines.sort("line").to_dicts():
        operation = row["operation_id"]
        mine = known.get(operation)
        again, seen = operation in seen, seen | {operation}
        what = "twice" if again else _difference(row, mine, tariff)
        status: Status = "missing_here" if mine is None else "differs" if what else "matched"
        found.append(
            Finding(
                status=status,
                operation_id=operation,
                kind=row["kind"],
                line=row["line"],
                our_currency=None if mine is None else mine["currency"],
                our_amount=None if mine is None else mine["amount"],
                their_currency=row["currency"],
                their_amount=row["amount"],
                fee=row["fee"],
                what=what,
            )
        )
    for operation, mine in sorted(known.items()):
        if mine["expected"] and operation not in seen and operation not in settled_elsewhere:
            found.append(
                Finding(
                    status="missing_there",
                    operation_id=operation,
                    kind=mine["kind"],
                    line=None,
                    our_currency=mine["currency"],
                    our_amount=mine["amount"],
                    their_currency=None,
                    their_amount=None,
                    fee=None,
                    what="",
                )
            )
    return found


def _difference(
    theirs: dict[str, object], ours: dict[str, object] | None, tariff: Tariff | None
) -> str:
    if ours is None:
        return ""
    fields = [name for name in ("kind", "currency", "amount") if theirs[name] != ours[name]]
    fee, amount = theirs["fee"], theirs["amount"]
    if isinstance(fee, int) and isinstance(amount, int) and tariff is not None:
        expected = tariff.fee(amount) if theirs["kind"] == "capture" else 0
        if abs(fee - expected) > 1:
            fields.append("fee")
    return ", ".join(fields)
