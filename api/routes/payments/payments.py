"""Payments: created, captured, refunded, voided, and how they stand."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Protocol

from fastapi import APIRouter, Depends, Response

from api import ingest
from api.auth import PAY, READ, requires
from api.commands import VERDICT, AskedDep, KeyedDep, ask
from api.json_route import JsonRoute
from api.positions import AppliedSource
from api.problem import Problem, responses
from api.reads import fresh
from api.routes.payments.models import NewPayment, Part, PaymentPath
from api.services import ServicesDep
from schemas.payments import events
from sinks.payments import payments as store

writes = APIRouter(
    prefix="/v1/payments",
    tags=["payments"],
    route_class=JsonRoute,
    dependencies=[requires(PAY)],
    responses={**VERDICT, **responses(400, 403, 404, 409, 413, 415)},
)


class PaymentReads(AppliedSource, Protocol):
    """What the read route asks; `sinks.payments.payments.PaymentReader` answers."""

    async def payment(self, payment_id: str) -> store.Payment | None:
        """A payment with its operations; None where there is none."""
        ...


@writes.post("", status_code=201)
async def create_payment(new: NewPayment, services: ServicesDep, asked: KeyedDep) -> Response:
    """Pay an order. The payment is `pending` until the provider has answered; from a wallet it is
    done, or refused, at once. An `Idempotency-Key` is required.
    """
    row = events.CreatePayment(
        book=new.book,
        payment_id=f"{new.book}.{asked.new_id('payment')}",
        order_id=new.order_id,
        account=new.account,
        currency=new.currency,
        amount=new.amount,
        method=new.method,
        capture=new.capture,
    )
    return await ask(services, asked, events.COMMANDS, events.CREATE_PAYMENT.name, row)


@writes.post("/{payment_id}/captures")
async def capture(
    payment_id: PaymentPath, part: Part, services: ServicesDep, asked: KeyedDep
) -> Response:
    """Capture some of what is authorized."""
    operation = f"{payment_id}.{asked.new_id('capture')}"
    row = events.CapturePayment(store.book_of(payment_id), payment_id, operation, part.amount)
    return await ask(services, asked, events.COMMANDS, events.CAPTURE_PAYMENT.name, row)


@writes.post("/{payment_id}/refunds")
async def refund(
    payment_id: PaymentPath, part: Part, services: ServicesDep, asked: KeyedDep
) -> Response:
    """Give some of what was captured back."""
    operation = f"{payment_id}.{asked.new_id('refund')}"
    row = events.RefundPayment(store.book_of(payment_id), payment_id, operation, part.amount)
    return await ask(services, asked, events.COMMANDS, events.REFUND_PAYMENT.name, row)


@writes.post("/{payment_id}/void")
async def void(payment_id: PaymentPath, services: ServicesDep, asked: AskedDep) -> Response:
    """Let go of what is authorized and not captured."""
    operation = f"{payment_id}.{asked.new_id('void')}"
    row = events.VoidPayment(store.book_of(payment_id), payment_id, operation)
    return await ask(services, asked, events.COMMANDS, events.VOID_PAYMENT.name, row)


router = APIRouter(
    prefix="/v1/payments",
    tags=["payments"],
    dependencies=[requires(READ)],
    responses={**responses(404, 504), 200: {"headers": ingest.APPLIED_HEADER}},
)


@router.get("/{payment_id}", response_model=store.Payment)
async def payment(
    payment_id: PaymentPath,
    source: Annotated[PaymentReads, Depends(fresh("payments", events.EVENTS))],
) -> store.Payment:
    """A payment as it stands, with what was asked of the provider for it."""
    found = await source.payment(payment_id)
    if found is None:
        raise Problem(HTTPStatus.NOT_FOUND, "no-payment", "there is no such payment")
    return found
