"""A ledger as one would write it first: plain dicts, everything counted again each time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Leg = tuple[str, str, int]
"""Debit, credit, amount."""


class NaiveLedger:
    """One currency. Every method says whether it was allowed, and if not, did nothing."""

    def __init__(self, wallets: Iterable[str]) -> None:
        self.moves: list[Leg] = []
        self.holds: dict[str, tuple[list[Leg], int]] = {}
        self.payments: dict[str, dict[str, Any]] = {}
        self.wallets = set(wallets)

    def balance(self, account: str) -> int:
        gained = sum(amount for _, credit, amount in self.moves if credit == account)
        return gained - sum(amount for debit, _, amount in self.moves if debit == account)

    def held(self, account: str) -> int:
        legs = [leg for legs, _ in self.holds.values() for leg in legs]
        for payment in self.payments.values():
            legs += [("shop", "psp", op[1]) for op in self.ops(payment, "refund", "asked")]
        return sum(amount for debit, _, amount in legs if debit == account)

    def _allowed(self) -> bool:
        return all(self.balance(name) >= self.held(name) for name in self.wallets)

    def transfer(self, legs: list[Leg]) -> bool:
        self.moves += legs
        if self._allowed():
            return True
        del self.moves[-len(legs) :]
        return False

    def hold(self, name: str, legs: list[Leg], expires: int) -> bool:
        if name in self.holds:
            return False
        self.holds[name] = (legs, expires)
        if self._allowed():
            return True
        del self.holds[name]
        return False

    def post(self, name: str, amount: int | None) -> bool:
        if name not in self.holds:
            return False
        legs, _ = self.holds[name]
        if amount is not None:
            if len(legs) > 1 or not 0 < amount <= legs[0][2]:
                return False
            legs = [(legs[0][0], legs[0][1], amount)]
        del self.holds[name]
        self.moves += legs
        return True

    def void(self, name: str) -> bool:
        return self.holds.pop(name, None) is not None

    def pass_time(self, now: int) -> None:
        self.holds = {n: h for n, h in self.holds.items() if not h[1] or h[1] > now}

    # Payments by card to the shop; an operation is [kind, amount, asked | failed | succeeded].

    def ops(self, payment: dict[str, Any], kind: str, *states: str) -> list[list[Any]]:
        return [op for op in payment["ops"].values() if op[0] == kind and op[2] in states]

    def create(self, name: str, amount: int) -> bool:
        if name in self.payments:
            return False
        self.payments[name] = {"ops": {f"{name}.auth": ["authorize", amount, "asked"]}}
        return True

    def ask(self, name: str, op: str, kind: str, amount: int) -> bool:
        payment = self.payments.get(name)
        if payment is None or op in payment["ops"]:
            return False
        first, then = ("authorize", "capture") if kind == "capture" else ("capture", "refund")
        have = sum(found[1] for found in self.ops(payment, first, "succeeded"))
        used = sum(found[1] for found in self.ops(payment, then, "asked", "succeeded"))
        if used + amount > have:
            return False
        payment["ops"][op] = [kind, amount, "asked"]
        if self._allowed():
            return True
        del payment["ops"][op]
        return False

    def tell(self, name: str, op: str, succeeded: bool) -> bool:
        found = self.payments.get(name, {"ops": {}})["ops"].get(op)
        if found is None or found[2] != "asked":
            return False
        found[2] = "succeeded" if succeeded else "failed"
        if succeeded and found[0] != "authorize":
            pair = ("psp", "shop") if found[0] == "capture" else ("shop", "psp")
            self.moves.append((*pair, found[1]))
        return True
