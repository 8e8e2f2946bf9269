"""The reader rule: the columns say what the rows say, wherever a batch is cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.decider.filter import (
    BrokenChain,
    Verdict,
    accept,
    claimed,
    columns,
    judge,
)
from streams.runtime.decider.wire import Cause, Decision, is_timer
from streams.runtime.position import FilterState

NONCES = ["00" * 16, "11" * 16, "ff" * 16]
Record = tuple[str, str, int, int, bool] | None
"""Nonce of a claim, or an event: (claim nonce, nonce, claim offset, seq, timer)."""


def claim(nonce: str) -> tuple[str, str]:
    return ("claim", nonce)


@st.composite
def logs(draw: st.DrawFn) -> list[object]:
    """Claims and events, mostly of the current epoch and the next number, sometimes not."""
    log: list[object] = []
    current, seq, source = (-1, ""), -1, -1
    for offset in range(draw(st.integers(0, 40))):
        kind = draw(st.sampled_from(["claim", "next", "next", "next", "timer", "odd", "none"]))
        if kind == "claim":
            current = (offset, draw(st.sampled_from(NONCES)))
            log.append(claim(current[1]))
        elif kind == "none":
            log.append(None)
        elif kind == "odd":
            nonce = draw(st.sampled_from([*NONCES, current[1] or NONCES[0]]))
            at = draw(st.sampled_from([current[0], -1, 0, offset]))
            number = seq + draw(st.sampled_from([0, -1, 2, 3]))
            log.append((Decision(at, nonce, number, source + 1), False))
        elif current[1]:
            seq, source = seq + 1, source + (kind == "next")
            log.append((Decision(current[0], current[1], seq, source), kind == "timer"))
    return log


def by_row(log: list[object], state: FilterState) -> tuple[list[Verdict], FilterState]:
    verdicts = []
    for offset, record in enumerate(log):
        if isinstance(record, tuple) and record[0] == "claim":
            state = claimed(state, offset, record[1])
            verdicts.append(Verdict.CLAIM)
            continue
        decision, timer = record if isinstance(record, tuple) else (None, False)
        state, verdict = judge(state, decision, timer=timer)
        verdicts.append(verdict)
    return verdicts, state


def by_column(log: list[object], first: int, state: FilterState) -> tuple[list[int], FilterState]:
    claims = {n: r[1] for n, r in enumerate(log) if isinstance(r, tuple) and r[0] == "claim"}
    signed = {n: r for n, r in enumerate(log) if isinstance(r, tuple) and n not in claims}
    raw = columns(signed[n][0].pack() if n in signed else None for n in range(len(log)))
    offsets = list(range(first, first + len(log)))
    found = accept(state, offsets, raw, claims, lambda n: signed[n][1])
    assert found.mask.sum() == found.rows(Verdict.ACCEPTED).size
    return found.codes.tolist(), found.state


@settings(max_examples=300, deadline=None)
@given(logs(), st.data())
def test_columns_and_rows_agree_for_every_cut(log: list[object], data: st.DataObject) -> None:
    expected, end = by_row(log, FilterState())
    cut = data.draw(st.integers(0, len(log)))
    left, state = by_column(log[:cut], 0, FilterState())
    right, state = by_column(log[cut:], cut, state)
    assert left + right == expected
    assert state == end


def test_the_plain_case_accepts_everything() -> None:
    nonce = NONCES[1]
    raw = columns([None, *(Decision(0, nonce, n, n).pack() for n in range(1_000))])
    found = accept(FilterState(), range(1_001), raw, {0: nonce}, lambda _: False)
    assert found.mask.tolist() == [False, *[True] * 1_000]
    assert found.state == FilterState(0, nonce, 999, 999)


@pytest.mark.parametrize("timer", [False, True])
def test_a_source_may_only_be_repeated_by_a_timer(timer: bool) -> None:
    state = FilterState(0, NONCES[1], 5, 7)
    decision = Decision(0, NONCES[1], 6, 7)
    if timer:
        expected = FilterState(0, NONCES[1], 6, 7)
        assert judge(state, decision, timer=True) == (expected, Verdict.ACCEPTED)
        assert accept(state, [9], columns([decision.pack()]), {}, lambda _: True).state == expected
        return
    with pytest.raises(BrokenChain, match="command at 7"):
        judge(state, decision, timer=False)
    with pytest.raises(BrokenChain, match="command at 7"):
        accept(state, [9], columns([decision.pack()]), {}, lambda _: False)


def test_a_source_never_goes_back() -> None:
    state = FilterState(0, NONCES[1], 5, 7)
    decision = Decision(0, NONCES[1], 6, 6)
    with pytest.raises(BrokenChain):
        judge(state, decision, timer=True)
    with pytest.raises(BrokenChain):
        accept(state, [9], columns([decision.pack()]), {}, lambda _: True)


def test_headers_of_another_length_belong_to_no_epoch() -> None:
    raw = columns([None, b"", b"x" * 39])
    assert (raw[:, 0] == -2).all()
    assert raw.dtype == np.int64


def test_a_cause_tells_a_timer_from_a_command() -> None:
    assert Cause.unpack(Cause(5, "hold/7").pack()) == Cause(5, "hold/7")
    assert is_timer([("headrace-cause", Cause(5, "hold/7").pack())])
    assert not is_timer([("headrace-cause", Cause(5).pack())])
    assert not is_timer(None)
