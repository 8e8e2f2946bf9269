"""Whatever order the provider's reports come in, and however often, the end is the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.payments.events import ReportOperation
from streams.runtime.decider.rules import Rejected
from tests.payments.desk import Desk, sums
from tests.payments.test_payments import P, authorized, capture, refund, told

STORIES = {
    "auth": ["succeeded"],
    "c1": ["unknown", "succeeded"],
    "c2": ["unknown", "failed"],
    "c3": ["succeeded", "succeeded"],
    "r1": ["unknown", "succeeded", "reversed"],
    "r2": ["unknown", "failed"],
    "r3": ["succeeded"],
}
"""What the provider says of each operation, in the order in which it happens there."""
REPORTS = [told(name, status) for name, statuses in STORIES.items() for status in statuses]


def asked() -> Desk:
    """Three captures and three refunds are asked for; their outcomes are still to come."""
    desk = authorized()
    desk.send(capture("c0", 3_000))
    desk.send(told("c0"))
    for name in ("c1", "c2", "c3"):
        desk.send(capture(name, 400))
    for name in ("r1", "r2", "r3"):
        desk.send(refund(name, 900))
    return desk


def end(desk: Desk, reports: list[ReportOperation]) -> dict[str, Any]:
    """How payment and accounts stand when all is told."""
    for report in reports:
        try:
            desk.send(report)
        except Rejected as rejected:
            assert rejected.code == "stale"
        assert not any(sums(desk.log).values())
    payment = desk.state["payments"]["main", P]
    return {
        "operations": {o.operation_id: (o.kind, o.status, o.amount) for o in payment.operations},
        "accounts": desk.state["accounts"],
        "state": [row.state for _, row in desk.log if hasattr(row, "state")][-1],
        "timers": {name for name in desk.state.timers if name.startswith("query")},
    }


@settings(max_examples=300, deadline=None)
@given(st.permutations(REPORTS), st.lists(st.sampled_from(REPORTS), max_size=12))
def test_any_order_and_any_repetition_end_alike(
    order: list[ReportOperation], again: list[ReportOperation]
) -> None:
    expected = end(asked(), REPORTS)
    got = end(asked(), [*again, *order])
    assert got == expected
    assert expected["timers"] == set()


@given(st.permutations(REPORTS), st.data())
def test_every_report_twice_changes_nothing(order: list[ReportOperation], data: Any) -> None:
    doubled = [report for report in order for _ in range(data.draw(st.integers(1, 3)))]
    assert end(asked(), doubled) == end(asked(), order)
