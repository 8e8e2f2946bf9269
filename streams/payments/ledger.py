"""Double entry: what one event does to the accounts of a book, checked as a whole.

A `Draft` gathers the changes of one event on top of the state, checks every account once at the
end, and gives the postings. Since every change goes through `move` or `hold`, which take
from one account what they give to another of the same currency, debits equal credits in every
currency by construction.
"""

from __future__ import annotations

from typing import Final

from schemas.payments.currencies import AMOUNT_MAX
from schemas.payments.events import Leg, Posting
from streams.payments.state import BALANCE_MAX, Account
from streams.runtime.decider.rules import Rejected, Table

OWN: Final = "$"
"""Accounts that a book keeps for itself begin with this; they open at their first use."""
PROVIDER: Final = "$psp"
"""What the payment provider owes us: captured, and not paid out yet."""
BANK: Final = "$bank"
FEES: Final = "$fees"
EXCHANGE: Final = "$fx"
CLEARING: Final = "$clearing"

_Line = list[int]
"""Amount, balance, debits held, credits held."""


def own(kind: str, currency: str, of: str = "") -> str:
    """The name of an account that a book keeps for itself."""
    return f"{kind}:{of}:{currency}" if of else f"{kind}:{currency}"


class Draft:
    """The changes of one event to one book, before they are decided."""

    __slots__ = ("_accounts", "_book", "_found", "_lines")

    def __init__(self, accounts: Table, book: str) -> None:
        self._accounts = accounts
        self._book = book
        self._found: dict[str, Account] = {}
        self._lines: dict[str, _Line] = {}

    def move(self, debit: str, credit: str, currency: str, amount: int) -> None:
        """Take an amount from one account and give it to another."""
        line = self._line(debit, currency)
        line[0] -= amount
        line[1] -= amount
        line = self._line(credit, currency)
        line[0] += amount
        line[1] += amount

    def hold(self, debit: str, credit: str, currency: str, amount: int) -> None:
        """Reserve an amount to be moved later; a negative amount lets go of it."""
        self._line(debit, currency)[2] += amount
        self._line(credit, currency)[3] += amount

    def postings(self) -> list[Posting]:
        """The changes, one an account. Raises `Rejected` when one may not be: an account's limit,
        or a balance beyond `BALANCE_MAX`.
        """
        found = self._found
        made: list[Posting] = []
        for name, (amount, balance, debits, credits) in self._lines.items():
            account = found[name]
            low, high = account.low, account.high
            if low is not None and balance - debits < low:
                raise Rejected("insufficient_funds", f"account {name} does not have so much")
            if high is not None and balance + credits > high:
                raise Rejected("over_limit", f"account {name} may not take so much")
            if not -BALANCE_MAX < balance < BALANCE_MAX or max(debits, credits) >= BALANCE_MAX:
                raise Rejected("over_limit", f"account {name} would pass {BALANCE_MAX}")
            made.append(
                {
                    "account": name,
                    "currency": account.currency,
                    "amount": amount,
                    "balance": balance,
                    "debits_held": debits,
                    "credits_held": credits,
                }
            )
        return made

    def _line(self, name: str, currency: str) -> _Line:
        line = self._lines.get(name)
        if line is None:
            account = self._accounts.get((self._book, name))
            if account is None:
                if not name.startswith(OWN):
                    raise Rejected("no_account", f"there is no account {name}", status=404)
                account = Account(currency, None, None)
            self._found[name] = account
            line = [0, account.balance, account.debits_held, account.credits_held]
            self._lines[name] = line
        if self._found[name].currency != currency:
            held = self._found[name].currency
            raise Rejected("wrong_currency", f"account {name} holds {held}, not {currency}")
        return line


def checked(legs: list[Leg]) -> list[Leg]:
    """The legs of a command. Raises `Rejected` for none, too many, an amount that is not positive
    or too large, an account that pays itself, or one that the book keeps for itself.
    """
    if not 0 < len(legs) <= 100:
        raise Rejected("bad_legs", "a transfer has from 1 to 100 legs", status=422)
    for leg in legs:
        positive(leg["amount"])
        debit, credit = leg["debit_account"], leg["credit_account"]
        if debit == credit:
            raise Rejected("bad_legs", f"account {debit} cannot pay itself", status=422)
    return legs


def positive(amount: int) -> int:
    """An amount that can be moved; raises `Rejected`."""
    if not 0 < amount <= AMOUNT_MAX:
        raise Rejected("bad_amount", f"an amount is from 1 to {AMOUNT_MAX}", status=422)
    return amount


def evolve(accounts: Table, book: str, postings: list[Posting]) -> None:
    """Fold the postings of an event into the accounts."""
    for posting in postings:
        key = (book, posting["account"])
        known = accounts.get(key)
        low, high = (None, None) if known is None else (known.low, known.high)
        accounts[key] = Account(
            posting["currency"],
            low,
            high,
            posting["balance"],
            posting["debits_held"],
            posting["credits_held"],
        )
