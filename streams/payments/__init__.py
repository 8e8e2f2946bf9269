"""Payments: books of accounts in double entry, and payments through a provider.

A command is decided by the writer of its book (`rules`), the journal of which is folded into
balances, statements, payments and settlement files (`fold`). What an event asks of the provider
or of another book, a reactor does, and brings the answer back as a command (`reactors`).
"""

from __future__ import annotations

from schemas.payments.events import COMMANDS, EVENTS
from sinks.payments import BOOKS
from streams.payments.fold import KeepBooks
from streams.payments.reactors import open_clearing, open_provider
from streams.payments.rules import PaymentRules
from streams.runtime.decider.rules import Decider
from streams.runtime.projection import Projection, System
from streams.runtime.reactor.rules import Limits, Reactor, RetryPolicy

RETRIES = RetryPolicy((5_000, 30_000, 300_000))

SYSTEM = System(
    name="payments",
    title="Payments, ledger, wallets",
    projections=(Projection("payments-books", EVENTS, KeepBooks(), BOOKS, store="cassandra"),),
    deciders=(Decider("payments", COMMANDS, EVENTS, PaymentRules()),),
    reactors=(
        Reactor(
            name="payments-psp",
            topic=EVENTS,
            open=open_provider,
            outcomes=COMMANDS,
            retry=RETRIES,
            limits=Limits(timeout_ms=30_000),
        ),
        Reactor(
            name="payments-clearing",
            topic=EVENTS,
            open=open_clearing,
            outcomes=COMMANDS,
            retry=RETRIES,
        ),
    ),
)
