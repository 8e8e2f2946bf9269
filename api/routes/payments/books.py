"""Accounts and transfers: opened, moved, held, posted, voided, converted, sent to other books."""

from __future__ import annotations

from fastapi import APIRouter, Response

from api.auth import LEDGER, requires
from api.commands import VERDICT, AskedDep, ask
from api.json_route import JsonRoute
from api.problem import responses
from api.routes.payments.models import (
    BookPath,
    NewAccount,
    NewConversion,
    NewRemittance,
    NewTransfer,
    Posted,
    TransferPath,
)
from api.services import ServicesDep
from schemas.payments import events

writes = APIRouter(
    prefix="/v1/books/{book}",
    tags=["payments"],
    route_class=JsonRoute,
    dependencies=[requires(LEDGER)],
    responses={**VERDICT, **responses(400, 403, 404, 409, 413, 415)},
)


@writes.post("/accounts", status_code=201)
async def open_account(
    book: BookPath, account: NewAccount, services: ServicesDep, asked: AskedDep
) -> Response:
    """Open an account; the first one of a book makes the book."""
    row = events.OpenAccount(
        book, account.account, account.currency, account.side, account.overdraft
    )
    return await ask(services, asked, events.COMMANDS, events.OPEN_ACCOUNT.name, row)


@writes.post("/transfers", status_code=201)
async def transfer(
    book: BookPath, new: NewTransfer, services: ServicesDep, asked: AskedDep
) -> Response:
    """Move amounts between accounts of a book, or hold them: all legs or none."""
    row = events.RecordTransfer(
        book=book,
        transfer_id=asked.new_id("transfer"),
        legs=[
            {
                "debit_account": leg.debit_account,
                "credit_account": leg.credit_account,
                "currency": leg.currency,
                "amount": leg.amount,
            }
            for leg in new.legs
        ],
        hold=new.hold,
        timeout_ms=new.timeout_ms,
        effective_at=new.effective_at,
        reference=new.reference,
        corrects=new.corrects or "",
    )
    return await ask(services, asked, events.COMMANDS, events.RECORD_TRANSFER.name, row)


@writes.post("/transfers/{transfer_id}/post", status_code=201)
async def post_transfer(
    book: BookPath,
    transfer_id: TransferPath,
    posted: Posted,
    services: ServicesDep,
    asked: AskedDep,
) -> Response:
    """Post a hold, or a part of it; the rest is let go."""
    row = events.PostTransfer(book, transfer_id, posted.amount)
    return await ask(services, asked, events.COMMANDS, events.POST_TRANSFER.name, row)


@writes.post("/transfers/{transfer_id}/void")
async def void_transfer(
    book: BookPath, transfer_id: TransferPath, services: ServicesDep, asked: AskedDep
) -> Response:
    """Let go of a hold."""
    row = events.VoidTransfer(book, transfer_id)
    return await ask(services, asked, events.COMMANDS, events.VOID_TRANSFER.name, row)


@writes.post("/conversions", status_code=201)
async def convert(
    book: BookPath, new: NewConversion, services: ServicesDep, asked: AskedDep
) -> Response:
    """Exchange an amount at a given rate, through the book's exchange accounts."""
    row = events.ConvertCurrency(
        book=book,
        transfer_id=asked.new_id("transfer"),
        from_account=new.from_account,
        to_account=new.to_account,
        sell_currency=new.sell_currency,
        sell_amount=new.sell_amount,
        buy_currency=new.buy_currency,
        rate=new.rate,
        reference=new.reference,
    )
    return await ask(services, asked, events.COMMANDS, events.CONVERT_CURRENCY.name, row)


@writes.post("/remittances", status_code=201)
async def remit(
    book: BookPath, new: NewRemittance, services: ServicesDep, asked: AskedDep
) -> Response:
    """Send an amount to another book. It is held until that book has taken or refused it: the
    transfer's state then is `posted` or `voided`.
    """
    row = events.SendToBook(
        book=book,
        transfer_id=asked.new_id("transfer"),
        account=new.account,
        to_book=new.to_book,
        to_account=new.to_account,
        currency=new.currency,
        amount=new.amount,
        reference=new.reference,
    )
    return await ask(services, asked, events.COMMANDS, events.SEND_TO_BOOK.name, row)
