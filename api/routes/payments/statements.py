"""Reads of books: balances now and as of any moment, statements, transfers, the trial balance.

Two clocks: an entry counts since its time of effect, and is known since its offset. What is asked
`as_of` a time and `known_at` an offset is answered alike for ever.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Protocol

import msgspec
from fastapi import APIRouter, Depends, Query
from pydantic import BaseModel, Field

from api import ingest
from api.auth import READ, requires
from api.models import QueryInstant
from api.positions import AppliedSource
from api.problem import InputError, Problem, invalid, responses
from api.reads import fresh
from api.routes.payments.models import AccountPath, BookPath, TransferPath
from schemas.payments import events
from sinks.payments import books

ENTRIES_MAX = 1_000
YEAR_MS = 366 * 24 * 3_600_000


class BookReads(AppliedSource, Protocol):
    """What the read routes ask; `sinks.payments.books.BookReader` answers."""

    async def balances(self, book: str) -> Sequence[books.Balance]:
        """Every account of a book, by name."""
        ...

    async def balance(self, book: str, account: str) -> books.Balance | None:
        """How one account stands now; None where there is none."""
        ...

    async def sums(self, book: str) -> Sequence[books.Sums]:
        """All accounts together, by currency."""
        ...

    async def as_of(self, book: str, account: str, until_ms: int, known: int) -> int:
        """The balance by entries that count before a time and have an offset before `known`."""
        ...

    async def statement(
        self, book: str, account: str, period: books.Period, at: books.At | None, *, limit: int
    ) -> books.Statement:
        """Up to `limit` entries of a period, behind `at`."""
        ...

    async def transfer(self, book: str, transfer_id: str) -> books.Transfer | None:
        """A transfer as it stands; None where there is none."""
        ...


class AsOf(BaseModel):
    """A balance as of a moment."""

    account: str
    balance: int = Field(description="Credits less debits, in minor units.")
    as_of: int | None = Field(description="Entries that count before this are in it.")
    known_at: int | None = Field(description="Entries with an offset before this are in it.")


class StatementPage(BaseModel):
    """A page of a statement."""

    opening: int = Field(description="Balance before the first entry of the page.")
    entries: list[books.Entry]
    closing: int | None = Field(description="Balance at the period's end; null before the last.")
    known_at: int = Field(description="The offset before which all pages look.")
    next: str | None = Field(description="Send it as `cursor` for the next page.")


async def period(
    since: Annotated[QueryInstant, Query(alias="from", description="Begin, inclusive.")],
    until: Annotated[QueryInstant, Query(alias="to", description="End, exclusive.")],
) -> books.Period:
    """Dependency: the period of a statement."""
    if not 0 <= until - since <= YEAR_MS:
        detail = "to must be from 0 to 366 days after from"
        raise invalid(detail, InputError(detail=detail, parameter="to"))
    return books.Period(since, until)


async def place(
    cursor: Annotated[str | None, Query(max_length=512, description="Of the page before.")] = None,
) -> books.At | None:
    """Dependency: where the page begins."""
    if cursor is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(cursor.encode())
        return books.At(*msgspec.json.decode(raw, type=tuple[int, int, int, int]))
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        detail = "not a cursor of an earlier page"
        raise invalid(detail, InputError(detail=detail, parameter="cursor")) from None


BooksDep = Annotated[BookReads, Depends(fresh("payments-books", events.EVENTS))]
Known = Annotated[int | None, Query(ge=0, le=2**53, description="Offset in the book's journal.")]

router = APIRouter(
    prefix="/v1/books/{book}",
    tags=["payments"],
    dependencies=[requires(READ)],
    responses={**responses(504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/accounts", response_model=list[books.Balance])
async def accounts(book: BookPath, source: BooksDep) -> Sequence[books.Balance]:
    """Every account of a book as it stands now, those included that the book keeps for itself."""
    return await source.balances(book)


@router.get("/sums", response_model=list[books.Sums])
async def sums(book: BookPath, source: BooksDep) -> Sequence[books.Sums]:
    """The trial balance: all accounts together, by currency. `balance` is zero."""
    return await source.sums(book)


@router.get("/accounts/{account}", response_model=books.Balance | AsOf, responses=responses(404))
async def account(
    book: BookPath,
    account: AccountPath,
    source: BooksDep,
    as_of: Annotated[QueryInstant | None, Query(description="Count what counts before.")] = None,
    known_at: Known = None,
) -> books.Balance | AsOf:
    """How an account stands, now or as of a moment, as known now or at an offset."""
    found = await source.balance(book, account)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-account", "there is no such account")
    if as_of is None and known_at is None:
        return found
    until = books.OPEN_END if as_of is None else as_of
    known = books.OPEN_END if known_at is None else known_at
    balance = await source.as_of(book, account, until, known)
    return AsOf(account=account, balance=balance, as_of=as_of, known_at=known_at)


@router.get("/accounts/{account}/statement")
async def statement(
    book: BookPath,
    account: AccountPath,
    asked: Annotated[books.Period, Depends(period)],
    at: Annotated[books.At | None, Depends(place)],
    source: BooksDep,
    *,
    limit: Annotated[int, Query(ge=1, le=ENTRIES_MAX)] = 100,
) -> StatementPage:
    """What changed an account in a period of at most a year, in order of effect.

    All pages show what was known when the first was read.
    """
    page = await source.statement(book, account, asked, at, limit=limit)
    return StatementPage(
        opening=page.opening,
        entries=list(page.entries),
        closing=page.closing,
        known_at=page.known,
        next=None if page.next is None else _cursor(page.next),
    )


@router.get("/transfers/{transfer_id}", response_model=books.Transfer, responses=responses(404))
async def transfer(book: BookPath, transfer_id: TransferPath, source: BooksDep) -> books.Transfer:
    """A transfer as it stands."""
    found = await source.transfer(book, transfer_id)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-transfer", "there is no such transfer")
    return found


def _cursor(at: books.At) -> str:
    raw = msgspec.json.encode((at.effective_ms, at.offset, at.balance, at.known))
    return base64.urlsafe_b64encode(raw).decode()
