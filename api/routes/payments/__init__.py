"""Books of accounts and payments: what can be asked and what can be done.

Everything that moves money is a command to the writer of its book, and is answered with the
verdict; reads answer from `payments-books`, each with the position it is true for.
"""

from __future__ import annotations

from api.routes.payments import books, payments, settlements, statements, webhooks

ROUTERS = (
    webhooks.router,
    payments.writes,
    payments.router,
    books.writes,
    statements.router,
    settlements.writes,
    settlements.router,
)
