"""One partition of the decider in memory: decide, evolve, timers, and the log that came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.payments.events import COMMANDS, EVENTS, OpenAccount, Posting, RecordTransfer
from streams.payments.rules import PaymentRules
from streams.payments.state import TABLES
from streams.runtime.decider.rules import Command, Envelope, Event, Rejected, Timer

T = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
MINUTE, DAY = 60_000, 24 * 3_600_000
RULES = PaymentRules()
_NAMES = {record.row: record.fullname for topic in (COMMANDS, EVENTS) for record in topic.records}


class Memory:
    """The state that rules see: dicts, and timers by name."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[Any, Any]] = {name: {} for name in TABLES}
        self.timers: dict[str, int] = {}

    def __getitem__(self, table: str) -> dict[Any, Any]:
        return self.tables[table]

    def schedule(self, name: str, time_ms: int) -> None:
        self.timers[name] = time_ms

    def cancel(self, name: str) -> None:
        self.timers.pop(name, None)


@dataclass
class Desk:
    """Sends commands one after the other; `log` holds the events with their times."""

    state: Memory = field(default_factory=Memory)
    log: list[tuple[int, Any]] = field(default_factory=list)
    now: int = T

    def send(self, row: Any, after_ms: int = 1) -> Any:
        """The event that a command leads to; raises `Rejected`. Timers that are due go first."""
        self.advance(after_ms)
        command = Command(_NAMES[type(row)], row, row.book, len(self.log), self.now, Envelope("c"))
        return self._fold(RULES.decide(self.state, command), self.now)  # type: ignore[arg-type]

    def refused(self, row: Any) -> str:
        """The code with which a command is refused; fails when it is not."""
        before = self.digest()
        try:
            event = self.send(row)
        except Rejected as rejected:
            assert self.digest() == before, "a refusal changes nothing"
            return rejected.code
        raise AssertionError(f"accepted: {event}")

    def advance(self, by_ms: int) -> list[Any]:
        """Let time pass; the events of the timers that came due, in order of their times."""
        self.now += by_ms
        fired = []
        while due := sorted((at, name) for name, at in self.state.timers.items() if at <= self.now):
            at, name = due[0]
            del self.state.timers[name]
            fired.append(self._fold(RULES.expire(self.state, Timer(name, at)), at))  # type: ignore[arg-type]
        return fired

    def restart(self) -> None:
        """Forget the state and fold the log again; both must be the same."""
        before, self.state = (self.state.tables, self.state.timers), Memory()
        for time_ms, row in self.log:
            self._evolve(row, time_ms)
        assert (self.state.tables, self.state.timers) == before

    def digest(self) -> int:
        """Changes with the tables."""
        return hash(repr(self.state.tables))

    def balance(self, account: str, book: str = "main") -> int:
        """What stands on an account; zero before its first use."""
        known = self.state["accounts"].get((book, account))
        return 0 if known is None else known.balance

    def available(self, account: str, book: str = "main") -> int:
        """What may be taken from a wallet."""
        known = self.state["accounts"][book, account]
        return int(known.balance - known.debits_held)

    def _fold(self, row: Any, time_ms: int) -> Any:
        self.log.append((time_ms, row))
        self._evolve(row, time_ms)
        return row

    def _evolve(self, row: Any, time_ms: int) -> None:
        RULES.evolve(self.state, Event(_NAMES[type(row)], row, time_ms))  # type: ignore[arg-type]


def opened(*books: str) -> Desk:
    """A desk with books that have wallets `alice`, `bob`, `shop` (EUR), `alice-usd` (USD) and
    `world`, an account that money comes from; alice has 100.00 EUR.
    """
    desk = Desk()
    for book in books or ("main",):
        for name in ("alice", "bob", "shop"):
            desk.send(OpenAccount(book, name, "EUR", "credit", 0))
        desk.send(OpenAccount(book, "alice-usd", "USD", "credit", 0))
        desk.send(OpenAccount(book, "world", "EUR", "debit", None))
        desk.send(transfer("world", "alice", 10_000, book=book))
    return desk


def transfer(debit: str, credit: str, amount: int, **fields: Any) -> RecordTransfer:
    """A transfer of one leg in EUR."""
    leg = {"debit_account": debit, "credit_account": credit, "currency": "EUR", "amount": amount}
    made: dict[str, Any] = {
        "book": "main",
        "transfer_id": "t",
        "legs": [leg],
        "hold": False,
        "timeout_ms": 0,
        "effective_at": None,
        "reference": "",
        "corrects": "",
    }
    return RecordTransfer(**{**made, **fields})


def postings(log: list[tuple[int, Any]]) -> Iterator[tuple[str, Posting]]:
    """Book and posting, of every event."""
    for _, row in log:
        for posting in getattr(row, "postings", ()):
            yield row.book, posting


def sums(log: list[tuple[int, Any]]) -> Mapping[tuple[str, str], int]:
    """Sum of all amounts by book and currency; every one of them must be zero."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for book, posting in postings(log):
        found[book, posting["currency"]] += posting["amount"]
    return found


def balanced(row: Any) -> bool:
    """Whether one event's amounts add up to zero in every currency."""
    return not any(sums([(0, row)]).values())
