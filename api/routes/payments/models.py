"""What clients of books and payments send. Amounts are integers of minor units; never a float."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path
from pydantic import AfterValidator, ConfigDict, Field

from api.models import Input, Instant, Text
from schemas.payments.cards import holds_card_number
from schemas.payments.currencies import AMOUNT_MAX, EXPONENTS

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}$"
BOOK = r"^[A-Za-z0-9][A-Za-z0-9_:@-]{0,63}$"
"""Without a dot: the id of a payment begins with the book and a dot."""


def _currency(code: str) -> str:
    if code not in EXPONENTS:
        raise ValueError("no currency of ISO 4217")
    return code


def _no_card(method: str) -> str:
    if holds_card_number(method):
        raise ValueError("send a token, never the number of a card")
    return method


Name = Annotated[str, Field(pattern=NAME)]
BookName = Annotated[str, Field(pattern=BOOK)]
Currency = Annotated[str, Field(pattern="^[A-Z]{3}$"), AfterValidator(_currency)]
Amount = Annotated[int, Field(ge=1, le=AMOUNT_MAX, description="Minor units of the currency.")]
Rate = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,12})?$")]

BookPath = Annotated[str, Path(pattern=BOOK, description="The book.")]
AccountPath = Annotated[str, Path(pattern=r"^\$?[A-Za-z0-9][A-Za-z0-9._:@$-]{0,254}$")]
TransferPath = Annotated[str, Path(pattern=NAME, description="The transfer.")]
PaymentPath = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9_:@-]{0,63}\.[A-Za-z0-9._:@-]{1,63}$")
]
FilePath = Annotated[str, Path(pattern=NAME, description="The settlement file.")]


class NewAccount(Input):
    """An account to open; the first one of a book makes the book."""

    account: Name = Field(description="Its name, unique in the book.")
    currency: Currency = Field(description="ISO 4217 code.")
    side: Literal["credit", "debit"] = Field(
        default="credit", description="credit for what we owe (wallets), debit for what we own."
    )
    overdraft: Annotated[int, Field(ge=0, le=AMOUNT_MAX)] | None = Field(
        default=0, description="How far it may go to the other side of zero; null: without limit."
    )


class NewLeg(Input):
    """An amount from one account to another."""

    debit_account: Name = Field(description="The account that gives.")
    credit_account: Name = Field(description="The account that receives.")
    currency: Currency = Field(description="ISO 4217 code; both accounts have it.")
    amount: Amount


class NewTransfer(Input):
    """A transfer: all legs or none, at once or first as a hold."""

    legs: list[NewLeg] = Field(min_length=1, max_length=100)
    hold: bool = Field(default=False, description="Only hold the amounts, to be posted later.")
    timeout_ms: Annotated[int, Field(ge=0, le=366 * 24 * 3_600_000)] = Field(
        default=0, description="After how long a hold expires; 0: never."
    )
    effective_at: Instant | None = Field(
        default=None, description="Since when it counts, not after now; now by default."
    )
    reference: Text = Field(default="", description="What it is for.")
    corrects: Name | None = Field(default=None, description="The transfer that it corrects.")


class Posted(Input):
    """How much of a hold to post."""

    amount: Amount | None = Field(default=None, description="Of a hold of one leg; all by default.")


class NewConversion(Input):
    """An exchange at a given rate."""

    from_account: Name = Field(description="The account that gives what is sold.")
    to_account: Name = Field(description="The account that receives what is bought.")
    sell_currency: Currency
    sell_amount: Amount
    buy_currency: Currency
    rate: Rate = Field(description="Units bought for one unit sold, as a decimal in a string.")
    reference: Text = ""


class NewRemittance(Input):
    """A transfer to an account of another book."""

    account: Name = Field(description="The account that gives.")
    to_book: BookName
    to_account: Name
    currency: Currency
    amount: Amount
    reference: Text = ""


class NewPayment(Input):
    """A payment of an order."""

    model_config = ConfigDict(populate_by_name=True)

    order_id: Text = Field(alias="orderId", min_length=1, description="What is paid for.")
    amount: Amount
    currency: Currency = Field(description="ISO 4217 code of the account that is paid.")
    method: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_no_card)] = Field(
        pattern=r"^[\x21-\x7e]+$",
        description="wallet:<account>, or the provider's token; never a card number.",
    )
    account: Name = Field(default="sales", description="The account that is paid.")
    book: BookName = Field(default="main", description="Its book.")
    capture: Literal["automatic", "manual"] = Field(
        default="automatic", description="Whether all of it is captured once it is authorized."
    )


class Part(Input):
    """How much to capture or to give back."""

    amount: Amount | None = Field(default=None, description="All that is left by default.")
