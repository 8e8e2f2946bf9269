"""The recount of a ledger finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.chaos.recount_ledger import DECISION, Found, Keys, Money, accepted, told

NONCES = ("00" * 16, "11" * 16)


@dataclass
class Message:
    """A record of a log in memory; its value is decoded already."""

    at: int
    content: tuple[str, dict[str, Any]]
    sent: list[tuple[str, bytes]]

    def offset(self) -> int:
        return self.at

    def partition(self) -> int:
        return 0

    def value(self) -> Any:
        return self.content

    def headers(self) -> list[tuple[str, bytes]]:
        return self.sent


def log(*records: int | tuple[int, int]) -> list[Message]:
    """Claims (which nonce) and events (epoch by the offset of its claim, number)."""
    made: list[Message] = []
    for at, one in enumerate(records):
        if isinstance(one, int):
            row = {"nonce": NONCES[one]}
            made.append(Message(at, ("headrace.OwnershipClaimed", row), []))
        else:
            claim, number = one
            nonce = bytes.fromhex(made[claim].content[1]["nonce"])
            raw = DECISION.pack(claim, nonce, number, number)
            made.append(Message(at, ("x.E", {}), [("headrace-decision", raw)]))
    return made


def decoded(value: Any) -> Any:
    return value


def test_the_reader_rule() -> None:
    found = Found()
    kept = accepted(log(0, (0, 0), (0, 2), (0, 1), 1, (0, 2), (4, 2), (4, 2)), decoded, found)
    assert [message.offset() for message, *_ in kept] == [1, 3, 6]
    assert found.counts == {"claims": 2, "stale": 1, "out of sequence": 2}
    assert found.stale == {(0, 5)}
    assert not found.wrong


def opened(money: Money, *accounts: str) -> None:
    for account in accounts:
        overdraft = None if account == "world" else 0
        money.opened({
            "book": "b", "account": account, "currency": "EUR", "side": "credit",
            "overdraft": overdraft,
        })  # fmt: skip


def moved(debit: tuple[str, int, int], credit: tuple[str, int, int], amount: int) -> Any:
    """A transfer; each side as account, change and balance of its posting."""
    leg = {
        "debit_account": debit[0], "credit_account": credit[0], "currency": "EUR",
        "amount": amount,
    }  # fmt: skip
    postings = [
        {
            "account": account, "currency": "EUR", "amount": change, "balance": balance,
            "debits_held": 0, "credits_held": 0,
        }
        for account, change, balance in (debit, credit)
    ]  # fmt: skip
    return {
        "book": "b", "transfer_id": "t", "change": "posted", "legs": [leg], "postings": postings,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("row", "imbalance", "negative", "wrong"),
    [
        (moved(("world", -5, -5), ("a", 5, 5), 5), 0, 0, False),
        (moved(("world", -5, -5), ("a", 6, 6), 5), 1, 0, True),
        (moved(("world", -5, -5), ("a", 5, 7), 5), 0, 0, True),
        (moved(("a", -5, -5), ("world", 5, 5), 5), 0, 1, False),
    ],
    ids=["right", "makes money", "tells another balance", "below zero"],
)
def test_money(row: Any, imbalance: int, negative: int, wrong: bool) -> None:
    found = Found()
    money = Money(found)
    opened(money, "world", "a")
    money.transferred(row)
    assert (found.counts["imbalance"], found.counts["negative"]) == (imbalance, negative)
    assert bool(found.wrong) == wrong
    money.transferred(row)
    assert money.posted["b", "t"] == 2  # which counts as double


def headers(print_: bytes = b"f") -> dict[str, bytes]:
    return {"headrace-idempotency-key": b"k", "headrace-fingerprint": print_}


def rejected(code: str, original: int = -1) -> dict[str, Any]:
    return {"code": code, "original_offset": original, "status": 200, "detail": ""}


@pytest.mark.parametrize(
    ("name", "row", "print_", "wrong"),
    [
        ("CommandRejected", rejected("duplicate", 3), b"f", False),
        ("CommandRejected", rejected("duplicate", 2), b"f", True),
        ("CommandRejected", rejected("key_reused"), b"g", False),
        ("CommandRejected", rejected("key_reused"), b"f", True),
        ("TransferRecorded", {}, b"f", True),
    ],
)
def test_keys(name: str, row: Any, print_: bytes, wrong: bool) -> None:
    found = Found()
    keys = Keys(found)
    keys.answered(headers(), 3, "TransferRecorded", {})
    keys.answered(headers(print_), 4, name, row)
    assert bool(found.wrong) == wrong
    assert (keys.effects["k"] > 1) == (name == "TransferRecorded")


def test_what_was_told_is_held_against_the_log() -> None:
    found = Found(stale={(0, 9)})
    keys = Keys(found)
    event = (headers(), "AccountOpened", {"account": "a"})
    ack = {
        "key": "k", "partition": 0, "offset": 3, "status": 201, "body": {"account": "a"},
        "replay": False,
    }  # fmt: skip
    told(ack, {(0, 3): event}, keys, found)
    assert not found.wrong
    told(ack | {"body": {"account": "b"}}, {(0, 3): event}, keys, found)
    assert len(found.wrong) == 1
    told(ack | {"offset": 9}, {(0, 3): event}, keys, found)
    assert found.counts["stale told"] == found.counts["acked_not_on_log"] == 1
