"""Settlement files: read exactly or refused as a whole; compared the same way every time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.payments.settlement_file import BadFile, parse, render
from connectors.payments.simulator.book import FIXED, SHARE_BP, Behaviour, Operations
from sinks.payments.payments import PaymentReader
from sinks.payments.reconciliation import Tariff, compare
from tests.payments.desk import DAY, T, opened
from tests.payments.store import stored
from tests.payments.test_books import LINE, settlement
from tests.payments.test_payments import payment, refund, told
from tests.payments.test_provider import FLAWLESS, Loop

PERIOD = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
HEAD = f"H,f,{PERIOD[0]},{PERIOD[1]}\n"
ROW = "L,main.p.c,capture,EUR,42.00,0.84,op_1\n"


def test_a_file() -> None:
    file = parse((HEAD + ROW + "T,1\n").encode())
    assert (file.file_id, file.period_to_ms - file.period_from_ms) == ("f", DAY)
    assert file.lines[0]["amount"] == 4_200
    assert parse(render(file, PERIOD)) == file
    assert parse(b"\xef\xbb\xbf" + render(file, PERIOD).replace(b"\n", b"\r\n")) == file


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEAD,
        HEAD + ROW,
        HEAD + "T,0\n",
        HEAD + ROW + "T,2\n",
        HEAD + ROW + "T,1,1\n",
        HEAD + ROW + "T,one\n",
        ROW + "T,1\n",
        HEAD + ROW.replace("42.00", "42.001") + "T,1\n",
        HEAD + ROW.replace("42.00", "-42.00") + "T,1\n",
        HEAD + ROW.replace("42.00", "NaN") + "T,1\n",
        HEAD + ROW.replace("EUR", "JPY") + "T,1\n",
        HEAD + ROW.replace("EUR", "EURO") + "T,1\n",
        HEAD + ROW.replace("capture", "tip") + "T,1\n",
        HEAD + ROW.replace("main.p.c", "") + "T,1\n",
        HEAD + ROW.replace("main.p.c", '"main.p.c') + "T,1\n",
        HEAD.replace("Z", "") + ROW + "T,1\n",
        HEAD.replace(PERIOD[1], PERIOD[0]) + ROW + "T,1\n",
        HEAD + ROW.replace("op_1", "op\0") + "T,1\n",
    ],
)
def test_what_is_no_file_is_refused_as_a_whole(text: str) -> None:
    with pytest.raises(BadFile):
        parse(text.encode())


@given(st.binary())
def test_any_bytes(raw: bytes) -> None:
    with pytest.raises(BadFile):
        parse(raw)


@given(st.text(alphabet='HLT,"\n\r0123456789.-Zmain capture EUR', max_size=200))
def test_any_text_like_a_file(text: str) -> None:
    try:
        parse((HEAD + text).encode())
    except BadFile:
        return
    assert text.rstrip().rpartition("\n")[2].startswith("T,")


def test_every_kind_of_finding() -> None:
    desk = opened()
    for n in range(1, 5):
        name = f"main.p{n}"
        desk.send(payment(payment_id=name, capture="automatic"))
        for operation in ("auth", "capture"):
            desk.send(told("", payment_id=name, operation_id=f"{name}.{operation}"))
    right = {**LINE, "operation_id": "main.p1.capture"}
    desk.send(
        settlement(
            right,
            right,
            {**right, "operation_id": "main.p2.capture", "amount": 4_201},
            {**right, "operation_id": "main.p3.capture", "fee": 900},
            {**right, "operation_id": "main.p9.capture"},
        )
    )
    reader = PaymentReader(stored(desk.log))
    found = asyncio.run(reader.reconciliation("main", "f", Tariff(140, 25)))
    assert found is not None
    assert [(f.status, f.operation_id, f.what) for f in found] == [
        ("matched", "main.p1.capture", ""),
        ("differs", "main.p1.capture", "twice"),
        ("differs", "main.p2.capture", "amount"),
        ("differs", "main.p3.capture", "fee"),
        ("missing_here", "main.p9.capture", ""),
        ("missing_there", "main.p4.capture", ""),
    ]
    assert asyncio.run(reader.reconciliation("main", "other", None)) is None


def test_what_we_learnt_of_a_day_late_is_still_matched() -> None:
    desk = opened()
    desk.send(payment(capture="automatic"))
    desk.send(told("auth"))
    desk.send(settlement({**LINE, "operation_id": "main.p.capture"}))
    reader = PaymentReader(stored(desk.log))
    (early,) = asyncio.run(reader.reconciliation("main", "f", None)) or []
    assert early.status == "missing_here"
    desk.advance(2 * DAY)
    desk.send(told("capture"))
    desk.send(refund("r", 100))
    desk.send(told("r"))
    reader = PaymentReader(stored(desk.log))
    (late,) = asyncio.run(reader.reconciliation("main", "f", None)) or []
    assert late.status == "matched"


def test_an_operation_in_another_file_is_not_missing() -> None:
    desk = opened()
    desk.send(payment(capture="automatic"))
    desk.send(told("auth"))
    desk.send(told("capture"))
    desk.send(settlement({**LINE, "operation_id": "main.p.capture"}, file_id="before"))
    desk.send(settlement({**LINE, "operation_id": "main.other.capture"}))
    reader = PaymentReader(stored(desk.log))
    found = asyncio.run(reader.reconciliation("main", "f", None)) or []
    assert [f.status for f in found] == ["missing_here"]


@given(st.randoms(use_true_random=False))
def test_a_report_does_not_depend_on_the_order_of_rows(chance: random.Random) -> None:
    lines = [{**LINE, "line": n, "operation_id": f"o{n % 7}"} for n in range(1, 12)]
    ours: list[dict[str, Any]] = [
        {"operation_id": f"o{n}", "kind": "capture", "currency": "EUR", "amount": 4_200 + n // 6}
        for n in range(3, 12)
    ]
    expected = compare(pl.DataFrame(lines), _ours(ours), {"o9"}, Tariff(140, 25))
    chance.shuffle(lines)
    chance.shuffle(ours)
    assert compare(pl.DataFrame(lines), _ours(ours), {"o9"}, Tariff(140, 25)) == expected


def _ours(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows).with_columns(expected=True)


@pytest.mark.parametrize("behaviour", [FLAWLESS, Behaviour(file_wrong=9, file_missing=9)])
def test_the_pretended_providers_file_finds_just_its_mistakes(behaviour: Behaviour) -> None:
    loop = Loop(3, behaviour)
    loop.provider.now = T
    for n in range(80):
        loop.send(payment(payment_id=f"main.p{n}", capture="automatic"))
    loop.webhooks()
    loop.wait(DAY // 2)
    operations: Operations = loop.provider.operations
    file = operations.settlement("f", T, T + DAY)
    loop.desk.send(settlement(*file.lines, period_from=T, period_to=T + DAY))
    reader = PaymentReader(stored(loop.desk.log))
    found = asyncio.run(reader.reconciliation("main", "f", Tariff(SHARE_BP, FIXED))) or []
    captured = {
        asked.reference: told.amount
        for asked, told, _ in operations.known.values()
        if asked.kind == "capture" and told.status == "succeeded"
    }
    by_line = {line["operation_id"]: line["amount"] for line in file.lines}
    assert {f.operation_id for f in found if f.status == "missing_there"} == (
        set(captured) - set(by_line)
    )
    assert {f.operation_id for f in found if f.status == "missing_here"} == (
        set(by_line) - set(captured)
    )
    assert {f.operation_id for f in found if f.status == "differs"} == {
        name for name in captured.keys() & by_line.keys() if captured[name] != by_line[name]
    }
    assert sum(f.status == "matched" for f in found) > 30
