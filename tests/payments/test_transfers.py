"""Accounts, transfers, holds, conversions, transfers between books."""

from __future__ import annotations

import pytest

from schemas.payments.currencies import AMOUNT_MAX
from schemas.payments.events import (
    ConvertCurrency,
    OpenAccount,
    PostTransfer,
    ReceiveFromBook,
    SendToBook,
    SettleSent,
    VoidTransfer,
)
from tests.payments.desk import DAY, T, balanced, opened, sums, transfer


def test_a_transfer_moves_and_balances() -> None:
    desk = opened()
    event = desk.send(transfer("alice", "bob", 2_500, reference="lunch"))
    assert (desk.balance("alice"), desk.balance("bob")) == (7_500, 2_500)
    assert balanced(event)
    assert event.number == len(desk.log)


def test_numbers_have_no_gaps_and_time_never_goes_back() -> None:
    desk = opened("main", "other")
    desk.now -= DAY
    desk.send(transfer("alice", "bob", 1))
    for book in ("main", "other"):
        rows = [row for _, row in desk.log if row.book == book]
        assert [row.number for row in rows] == list(range(1, len(rows) + 1))
        assert [row.recorded_at for row in rows] == sorted(row.recorded_at for row in rows)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (transfer("alice", "bob", 10_001), "insufficient_funds"),
        (transfer("alice", "bob", 0), "bad_amount"),
        (transfer("alice", "bob", -5), "bad_amount"),
        (transfer("alice", "bob", AMOUNT_MAX + 1), "bad_amount"),
        (transfer("alice", "alice", 5), "bad_legs"),
        (transfer("alice", "nobody", 5), "no_account"),
        (transfer("alice", "alice-usd", 5), "wrong_currency"),
        (transfer("$bank:EUR", "alice", 5), "own_account"),
        (transfer("alice", "bob", 5, legs=[]), "bad_legs"),
        (transfer("alice", "bob", 5, book="elsewhere"), "no_book"),
        (transfer("alice", "bob", 5, effective_at=T + 10 * DAY), "effective_later"),
        (transfer("alice", "bob", 5, hold=True, timeout_ms=-1), "bad_timeout"),
        (transfer("alice", "bob", 5, hold=True, transfer_id="a\nb"), "bad_name"),
        (OpenAccount("main", "alice", "EUR", "credit", 0), "exists"),
        (OpenAccount("main", "$bank:EUR", "EUR", "credit", 0), "bad_name"),
        (OpenAccount("ma.in", "x", "EUR", "credit", 0), "bad_name"),
        (OpenAccount("main", "x", "QQQ", "credit", 0), "no_currency"),
        (PostTransfer("main", "t", None), "not_pending"),
        (VoidTransfer("main", "t"), "not_pending"),
    ],
)
def test_refusals(command: object, code: str) -> None:
    assert opened().refused(command) == code


def test_all_legs_or_none() -> None:
    desk = opened()
    one, other = (transfer("alice", to, 6_000).legs[0] for to in ("bob", "shop"))
    assert desk.refused(transfer("", "", 0, legs=[one, other])) == "insufficient_funds"
    other["amount"] = 4_000
    desk.send(transfer("", "", 0, legs=[one, other]))
    assert [desk.balance(name) for name in ("alice", "bob", "shop")] == [0, 6_000, 4_000]


def test_money_that_passes_through_an_account_in_one_transfer_is_enough() -> None:
    desk = opened()
    legs = [transfer("bob", "shop", 500).legs[0], transfer("alice", "bob", 500).legs[0]]
    desk.send(transfer("", "", 0, legs=legs))
    assert (desk.balance("bob"), desk.balance("shop")) == (0, 500)


def test_debit_side_accounts_have_a_limit_too() -> None:
    desk = opened()
    desk.send(OpenAccount("main", "cash", "EUR", "debit", 0))
    assert desk.refused(transfer("alice", "cash", 1)) == "over_limit"
    desk.send(transfer("cash", "alice", 100))
    desk.send(transfer("alice", "cash", 100))
    assert desk.balance("cash") == 0


def test_an_overdraft_is_used_to_its_end() -> None:
    desk = opened()
    desk.send(OpenAccount("main", "credit", "EUR", "credit", 700))
    desk.send(transfer("credit", "bob", 700))
    assert desk.refused(transfer("credit", "bob", 1)) == "insufficient_funds"


class TestHolds:
    def test_held_money_cannot_be_spent_twice(self) -> None:
        desk = opened()
        desk.send(transfer("alice", "bob", 8_000, hold=True))
        assert (desk.balance("alice"), desk.available("alice")) == (10_000, 2_000)
        assert desk.refused(transfer("alice", "shop", 2_001)) == "insufficient_funds"

    def test_the_receiver_cannot_spend_it_yet(self) -> None:
        desk = opened()
        desk.send(transfer("alice", "bob", 8_000, hold=True))
        assert desk.refused(transfer("bob", "shop", 1)) == "insufficient_funds"

    def test_a_part_is_posted_and_the_rest_let_go(self) -> None:
        desk = opened()
        desk.send(transfer("alice", "bob", 8_000, hold=True))
        desk.send(PostTransfer("main", "t", 3_000))
        assert (desk.available("alice"), desk.balance("bob")) == (7_000, 3_000)

    @pytest.mark.parametrize("first", ["post", "void", "expire"])
    def test_it_is_resolved_once(self, first: str) -> None:
        desk = opened()
        desk.send(transfer("alice", "bob", 8_000, hold=True, timeout_ms=1_000))
        match first:
            case "post":
                desk.send(PostTransfer("main", "t", None))
            case "void":
                desk.send(VoidTransfer("main", "t"))
            case _:
                (event,) = desk.advance(1_000)
                assert event.change == "expired"
        assert desk.refused(PostTransfer("main", "t", None)) == "not_pending"
        assert desk.refused(VoidTransfer("main", "t")) == "not_pending"
        assert desk.advance(10_000) == []
        assert desk.balance("bob") == (8_000 if first == "post" else 0)
        assert desk.available("alice") == (2_000 if first == "post" else 10_000)

    def test_no_more_than_is_held(self) -> None:
        desk = opened()
        desk.send(transfer("alice", "bob", 8_000, hold=True))
        assert desk.refused(PostTransfer("main", "t", 8_001)) == "bad_amount"
        assert desk.refused(transfer("alice", "bob", 1, hold=True)) == "exists"


class TestConversions:
    def test_four_postings_and_zero_in_both_currencies(self) -> None:
        desk = opened()
        event = desk.send(
            ConvertCurrency("main", "x", "alice", "alice-usd", "EUR", 1_000, "USD", "1.0842", "")
        )
        assert len(event.postings) == 4
        assert (desk.balance("alice"), desk.balance("alice-usd")) == (9_000, 1_084)
        assert (desk.balance("$fx:EUR"), desk.balance("$fx:USD")) == (1_000, -1_084)
        assert balanced(event)

    @pytest.mark.parametrize("rate", ["0", "-1", "1e3", "NaN", "", "1.0000000000001"])
    def test_a_rate_is_a_positive_decimal(self, rate: str) -> None:
        command = ConvertCurrency("main", "x", "alice", "alice-usd", "EUR", 1, "USD", rate, "")
        assert opened().refused(command) == "bad_rate"

    def test_nothing_is_bought_for_too_little(self) -> None:
        command = ConvertCurrency("main", "x", "alice", "alice-usd", "EUR", 1, "USD", "0.4", "")
        assert opened().refused(command) == "bad_amount"


class TestBetweenBooks:
    SEND = SendToBook("main", "t", "alice", "other", "shop", "EUR", 600, "")
    RECEIVE = ReceiveFromBook("other", "t", "shop", "main", "EUR", 600, "")

    def test_both_clearing_accounts_mirror_each_other(self) -> None:
        desk = opened("main", "other")
        desk.send(self.SEND)
        assert (desk.balance("alice"), desk.available("alice")) == (10_000, 9_400)
        assert desk.send(self.RECEIVE).change == "posted"
        desk.send(SettleSent("main", "t", True, ""))
        assert (desk.balance("alice"), desk.balance("shop", "other")) == (9_400, 600)
        here = desk.balance("$clearing:other:EUR", "main")
        assert here == -desk.balance("$clearing:main:EUR", "other") == 600
        assert not any(sums(desk.log).values())

    def test_told_twice_it_arrives_once(self) -> None:
        desk = opened("main", "other")
        desk.send(self.SEND)
        desk.send(self.RECEIVE)
        assert desk.refused(self.RECEIVE) == "received"
        desk.send(SettleSent("main", "t", True, ""))
        assert desk.refused(SettleSent("main", "t", True, "")) == "not_pending"
        assert desk.balance("shop", "other") == 600

    def test_what_is_refused_there_comes_back(self) -> None:
        desk = opened("main", "other")
        desk.send(SendToBook("main", "t", "alice", "other", "nobody", "EUR", 600, ""))
        event = desk.send(ReceiveFromBook("other", "t", "nobody", "main", "EUR", 600, ""))
        assert (event.change, event.detail) == ("refused", "no_account")
        desk.send(SettleSent("main", "t", False, "no_account"))
        assert desk.available("alice") == 10_000

    def test_a_book_that_is_not_there_answers_and_can_still_begin(self) -> None:
        desk = opened()
        answer = desk.send(ReceiveFromBook("new", "t", "shop", "main", "EUR", 600, ""))
        assert answer.change == "refused"
        assert desk.send(OpenAccount("new", "shop", "EUR", "credit", 0)).number == 2

    def test_only_the_other_book_decides(self) -> None:
        desk = opened("main", "other")
        desk.send(self.SEND)
        assert desk.refused(VoidTransfer("main", "t")) == "in_clearing"
        assert desk.refused(PostTransfer("main", "t", None)) == "in_clearing"
        assert desk.advance(400 * DAY) == []
