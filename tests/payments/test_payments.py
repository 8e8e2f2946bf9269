"""Payments: authorize, capture, refund, void; what the provider says and when it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.payments.events import (
    CapturePayment,
    CreatePayment,
    OpenAccount,
    RefundPayment,
    ReportOperation,
    VoidPayment,
)
from streams.payments.payments import AUTHORIZED_MS, QUERIES_MS, REFUNDABLE_MS
from tests.payments.desk import DAY, Desk, opened, sums, transfer

P = "main.p"


def payment(**fields: Any) -> CreatePayment:
    """A payment of 42.00 EUR to the shop, by card, captured by hand."""
    made: dict[str, Any] = {
        "book": "main",
        "payment_id": P,
        "order_id": "o",
        "account": "shop",
        "currency": "EUR",
        "amount": 4_200,
        "method": "tok_visa",
        "capture": "manual",
    }
    return CreatePayment(**{**made, **fields})


def told(operation: str, status: str = "succeeded", **fields: Any) -> ReportOperation:
    """What the provider says of an operation."""
    made: dict[str, Any] = {
        "book": "main",
        "payment_id": P,
        "operation_id": f"{P}.{operation}",
        "status": status,
        "amount": None,
        "currency": "EUR",
        "psp_reference": "",
        "reason": "",
        "source": "webhook",
    }
    return ReportOperation(**{**made, **fields})


def capture(name: str, amount: int | None = None) -> CapturePayment:
    return CapturePayment("main", P, f"{P}.{name}", amount)


def refund(name: str, amount: int | None = None) -> RefundPayment:
    return RefundPayment("main", P, f"{P}.{name}", amount)


def authorized(**fields: Any) -> Desk:
    """A desk with an authorized payment."""
    desk = opened()
    desk.send(payment(**fields))
    desk.send(told("auth"))
    return desk


def captured(amount: int | None = None) -> Desk:
    """A desk with a captured payment."""
    desk = authorized()
    desk.send(capture("c", amount))
    desk.send(told("c"))
    return desk


def state(desk: Desk) -> str:
    """The state the last event told."""
    return str(desk.log[-1][1].state)


def test_a_new_payment_asks_for_an_authorization() -> None:
    event = opened().send(payment())
    (asked,) = event.operations
    assert (asked["kind"], asked["ask"], asked["status"]) == ("authorize", "call", "requested")
    assert event.state == "pending"
    assert event.postings == []


def test_an_authorization_is_a_hold() -> None:
    desk = authorized()
    shop = desk.state["accounts"]["main", "shop"]
    assert (shop.balance, shop.credits_held, state(desk)) == (0, 4_200, "authorized")


def test_a_decline_is_the_end() -> None:
    desk = opened()
    desk.send(payment())
    desk.send(told("auth", "failed", reason="do_not_honor"))
    assert state(desk) == "failed"
    assert desk.refused(capture("c")) == "not_capturable"


def test_the_provider_may_authorize_less() -> None:
    desk = opened()
    desk.send(payment())
    desk.send(told("auth", amount=1_000))
    assert desk.refused(capture("c", 1_001)) == "not_capturable"


def test_captures_add_up_to_what_is_authorized() -> None:
    desk = authorized()
    desk.send(capture("c1", 1_000))
    assert desk.refused(capture("c2", 3_201)) == "not_capturable"
    desk.send(capture("c2", 3_200))
    desk.send(told("c1"))
    assert (state(desk), desk.balance("shop")) == ("partially_captured", 1_000)
    desk.send(told("c2"))
    assert (state(desk), desk.balance("shop")) == ("captured", 4_200)
    assert desk.balance("$psp:EUR") == -4_200


def test_a_failed_capture_can_be_asked_for_again() -> None:
    desk = authorized()
    desk.send(capture("c1"))
    desk.send(told("c1", "failed"))
    desk.send(capture("c2"))
    assert desk.log[-1][1].operations[0]["amount"] == 4_200


def test_automatic_capture_follows_the_authorization() -> None:
    desk = authorized(capture="automatic")
    first, follow = desk.log[-1][1].operations
    assert (first["ask"], follow["kind"], follow["ask"]) == ("", "capture", "call")
    desk.send(told("capture"))
    assert state(desk) == "captured"


def test_refunds_add_up_to_what_is_captured() -> None:
    desk = captured(3_000)
    assert desk.refused(refund("r1", 3_001)) == "not_refundable"
    desk.send(refund("r1", 1_000))
    assert desk.refused(refund("r2", 2_001)) == "not_refundable"
    desk.send(told("r1"))
    desk.send(refund("r2"))
    desk.send(told("r2"))
    assert (state(desk), desk.balance("shop")) == ("refunded", 0)


def test_a_refund_on_its_way_cannot_be_spent() -> None:
    desk = captured()
    desk.send(refund("r"))
    assert desk.refused(transfer("shop", "bob", 1)) == "insufficient_funds"
    desk.send(told("r", "failed"))
    desk.send(transfer("shop", "bob", 4_200))
    assert desk.refused(refund("r2")) == "insufficient_funds"


def test_a_refund_that_bounces_is_the_payees_again() -> None:
    desk = captured()
    desk.send(refund("r"))
    desk.send(told("r"))
    desk.send(told("r", "reversed"))
    assert (state(desk), desk.balance("shop")) == ("captured", 4_200)


def test_a_void_lets_go_of_what_was_not_captured() -> None:
    desk = captured(1_000)
    desk.send(VoidPayment("main", P, f"{P}.v"))
    assert desk.refused(capture("c2")) == "not_capturable"
    desk.send(told("v"))
    assert (state(desk), desk.state["accounts"]["main", "shop"].credits_held) == ("captured", 0)
    assert desk.refused(VoidPayment("main", P, f"{P}.v2")) == "not_voidable"


def test_no_void_while_a_capture_is_on_its_way() -> None:
    desk = authorized()
    desk.send(capture("c", 1))
    assert desk.refused(VoidPayment("main", P, f"{P}.v")) == "capturing"


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (payment(method="4242 4242 4242 4242"), "card_number"),
        (payment(payment_id="elsewhere.p"), "bad_name"),
        (payment(account="nobody"), "no_account"),
        (payment(currency="USD"), "wrong_currency"),
        (payment(amount=0), "bad_amount"),
        (payment(method="wallet:$psp:EUR"), "bad_name"),
        (payment(method="wallet:shop"), "bad_legs"),
        (payment(method="wallet:bob"), "insufficient_funds"),
        (refund("r"), "no_payment"),
        (told("auth"), "no_payment"),
    ],
)
def test_refusals(command: object, code: str) -> None:
    assert opened().refused(command) == code


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (told("auth"), "stale"),
        (told("auth", "unknown"), "stale"),
        (told("nothing"), "no_operation"),
        (told("c", amount=4_201), "differs"),
        (told("c", currency="USD"), "differs"),
        (told("c", amount=0), "differs"),
    ],
)
def test_reports_that_are_no_news_or_cannot_be(report: ReportOperation, code: str) -> None:
    desk = authorized()
    desk.send(capture("c"))
    assert desk.refused(report) == code


class TestWallets:
    def test_paid_at_once(self) -> None:
        desk = opened()
        event = desk.send(payment(method="wallet:alice", capture="automatic"))
        assert (event.state, desk.balance("alice"), desk.balance("shop")) == (
            "captured",
            5_800,
            4_200,
        )
        assert not [told for told in event.operations if told["ask"]]
        desk.send(refund("r", 200))
        assert (desk.balance("alice"), state(desk)) == (6_000, "partially_refunded")

    def test_held_captured_in_parts_and_let_go(self) -> None:
        desk = opened()
        desk.send(payment(method="wallet:alice"))
        assert desk.available("alice") == 5_800
        desk.send(capture("c", 1_000))
        desk.send(VoidPayment("main", P, f"{P}.v"))
        assert (desk.available("alice"), desk.balance("alice")) == (9_000, 9_000)

    def test_nobody_else_reports(self) -> None:
        desk = opened()
        desk.send(payment(method="wallet:alice"))
        assert desk.refused(told("auth", "reversed")) == "no_operation"


class TestTime:
    def test_no_answer_is_asked_for_until_there_is_one(self) -> None:
        desk = opened()
        desk.send(payment())
        desk.send(told("auth", "unknown"))
        asked = desk.advance(DAY)
        assert {row.operations[0]["ask"] for row in asked} == {"query"}
        assert len(asked) == len(QUERIES_MS) - 1
        assert len(desk.advance(3 * DAY)) == 3
        desk.send(told("auth", "failed"))
        assert desk.advance(30 * DAY) == []

    def test_an_answer_that_never_came_at_all_is_asked_for(self) -> None:
        desk = opened()
        desk.send(payment())
        (event,) = desk.advance(QUERIES_MS[0])
        assert (event.change, event.operations[0]["ask"]) == ("query_due", "query")

    def test_an_authorization_lapses(self) -> None:
        desk = authorized()
        event = desk.advance(AUTHORIZED_MS)[0]
        assert event.change == "void_requested"
        desk.send(told("lapse1"))
        assert state(desk) == "voided"
        assert not [name for name in desk.state.timers if name.startswith("lapse")]

    def test_a_lapse_waits_for_a_capture(self) -> None:
        desk = authorized()
        desk.advance(AUTHORIZED_MS - 1_000)
        desk.send(capture("c", 100))
        fired = desk.advance(2_000)
        assert [row.change for row in fired] == ["reported"]
        desk.send(told("c"))
        assert "void_requested" in [row.change for row in desk.advance(DAY)]

    def test_a_payment_is_closed_in_the_end(self) -> None:
        desk = captured()
        desk.advance(REFUNDABLE_MS)
        assert desk.log[-1][1].change == "closed"
        assert desk.state.timers == {}
        assert desk.refused(refund("r")) == "no_payment"
        assert desk.balance("shop") == 4_200

    def test_not_while_something_is_open(self) -> None:
        desk = captured()
        desk.send(refund("r"))
        desk.advance(REFUNDABLE_MS + DAY)
        desk.send(told("r"))
        desk.advance(2 * DAY)
        assert desk.log[-1][1].change == "closed"
        assert not any(sums(desk.log).values())


def test_payees_need_not_be_the_first_account() -> None:
    desk = opened()
    desk.send(OpenAccount("main", "shop-usd", "USD", "credit", 0))
    desk.send(payment(account="shop-usd", currency="USD"))
    desk.send(told("auth", currency="USD"))
    assert desk.state["accounts"]["main", "$psp:USD"].debits_held == 4_200


def test_payees_take_any_amount() -> None:
    desk = opened()
    desk.send(OpenAccount("main", "till", "EUR", "debit", 0))
    assert desk.refused(payment(account="till")) == "limited"
