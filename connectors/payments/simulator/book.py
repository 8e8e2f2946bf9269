"""What the pretended provider does with operations, and what it would do wrong; no I/O.

Everything follows from the seed and the operation's reference, so the same operations have the
same fate in every run, in whatever order they come.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from connectors.payments.psp import Asked, Status, Told
from connectors.payments.settlement_file import SettlementFile
from schemas.payments.events import SettlementLine

SHARE_BP: Final = 140
FIXED: Final = 25
"""The fee of a capture: 1.4 % and 0.25 (of a currency with two digits)."""


@dataclass(frozen=True)
class Behaviour:
    """How often, in percent, the provider does what."""

    declines: int = 5
    pending: int = 20
    """Answers that the outcome comes later, by webhook."""
    lost_before: int = 3
    """Never receives a request, which times out."""
    lost_after: int = 7
    """Does what was asked, and its answer is lost."""
    webhook_twice: int = 20
    webhook_lost: int = 10
    delay_ms: int = 400
    """Longest delay of a webhook; so they come in any order."""
    file_wrong: int = 1
    """Lines of a settlement file with another amount than was captured."""
    file_missing: int = 1
    file_alien: int = 1
    """Lines of operations that nobody asked for."""


@dataclass(frozen=True)
class Fate:
    """What becomes of one operation."""

    status: Status
    pending: bool
    lost: str
    """before, after, or empty."""


@dataclass(frozen=True)
class Delivery:
    """One webhook to send."""

    delay_ms: int
    told: Told


@dataclass
class Operations:
    """The provider's books: every operation it received, by reference."""

    seed: int = 0
    behaviour: Behaviour = field(default_factory=Behaviour)
    known: dict[str, tuple[Asked, Told, int]] = field(default_factory=dict)
    """What was asked, what came of it, and when (milliseconds since 1970)."""
    calls: dict[str, int] = field(default_factory=dict)
    """How often each was asked to be done, lost requests included."""

    def fate(self, asked: Asked) -> Fate:
        """What becomes of an operation, once received."""
        chance, how = self._chance(asked.reference, "fate"), self.behaviour
        declined = asked.kind == "authorize" and chance.randrange(100) < how.declines
        lost, pending = chance.randrange(100), chance.randrange(100) < how.pending
        kind = ""
        if lost < how.lost_before:
            kind = "before"
        elif lost < how.lost_before + how.lost_after:
            kind = "after"
        return Fate("failed" if declined else "succeeded", pending, kind)

    def receive(self, asked: Asked, now_ms: int) -> tuple[Told | None, list[Delivery]]:
        """The answer (None: the caller gets none) and the webhooks that follow. An operation that
        is known is only told again. Raises `ValueError` for another operation under the same
        reference.
        """
        calls = self.calls[asked.reference] = self.calls.get(asked.reference, 0) + 1
        fate = self.fate(asked)
        if fate.lost == "before" and calls == 1:
            return None, []
        if asked.reference in self.known:
            first, told, _ = self.known[asked.reference]
            if first != asked:
                raise ValueError("this reference was used for another operation")
            return told, []
        told = Told(
            reference=asked.reference,
            payment=asked.payment,
            status=fate.status,
            amount=asked.amount,
            currency=asked.currency,
            id=f"op_{len(self.known) + 1}",
            reason="do_not_honor" if fate.status == "failed" else "",
        )
        self.known[asked.reference] = (asked, told, now_ms)
        answer = _with(told, "pending") if fate.pending else told
        return None if fate.lost == "after" else answer, list(self._webhooks(told, fate))

    def look(self, reference: str) -> Told | None:
        """How an operation stands; None where it was never received."""
        found = self.known.get(reference)
        return None if found is None else found[1]

    def settlement(self, file_id: str, from_ms: int, to_ms: int) -> SettlementFile:
        """The file of what was done in a period, with the mistakes that `behaviour` asks for."""
        lines: list[SettlementLine] = []
        for asked, told, at_ms in self.known.values():
            done = told.status == "succeeded" and asked.kind in ("capture", "refund")
            if not done or not from_ms <= at_ms < to_ms:
                continue
            draw = self._chance(asked.reference, "file").randrange(100)
            if draw < self.behaviour.file_missing:
                continue
            wrong = draw < self.behaviour.file_missing + self.behaviour.file_wrong
            lines.append(_line(len(lines) + 1, asked, told, extra=int(wrong)))
            if draw >= 100 - self.behaviour.file_alien:
                alien = _line(len(lines) + 1, asked, told, extra=0)
                lines.append({**alien, "operation_id": f"{asked.payment}.alien"})
        return SettlementFile(file_id, from_ms, to_ms, tuple(lines))

    def _webhooks(self, told: Told, fate: Fate) -> Iterator[Delivery]:
        chance, how = self._chance(told.reference, "webhooks"), self.behaviour
        statuses: list[Status] = ["pending", told.status] if fate.pending else [told.status]
        for status in statuses:
            copies = 2 if chance.randrange(100) < how.webhook_twice else 1
            if chance.randrange(100) < how.webhook_lost:
                copies = 0
            for _ in range(copies):
                yield Delivery(chance.randint(0, how.delay_ms), _with(told, status))

    def _chance(self, reference: str, what: str) -> random.Random:
        return random.Random(f"{self.seed} {what} {reference}")  # noqa: S311 - a plan, no secret


def _line(number: int, asked: Asked, told: Told, *, extra: int) -> SettlementLine:
    amount = told.amount + extra
    fee = amount * SHARE_BP // 10_000 + FIXED if asked.kind == "capture" else 0
    return {
        "line": number,
        "operation_id": asked.reference,
        "kind": asked.kind,
        "currency": asked.currency,
        "amount": amount,
        "fee": fee,
        "psp_reference": told.id,
    }


def _with(told: Told, status: Status) -> Told:
    return Told(
        told.reference,
        told.payment,
        status,
        told.amount,
        told.currency,
        told.id,
        told.reason if status == "failed" else "",
    )
