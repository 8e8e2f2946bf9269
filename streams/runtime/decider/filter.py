"""The reader rule (A2): which records of a decider's event topic count. Everybody runs this.

A claim begins an epoch: the pair of its offset and its nonce. An event counts iff it was decided
in the current epoch and its sequence number is the next one; all else is dropped and counted. So
a paused writer, a lost middle record and a retry out of order are refused by every reader alike,
in log order. The state `F` of the rule is a `FilterState`, and part of every position (A3).

`claimed` and `judge` are the rule for one record, `accept` is the same for the columns of a batch.
A record that is neither a claim nor carries a decision header is none of an epoch: it is refused.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from streams.runtime.decider.wire import DECISION_BYTES, Decision
from streams.runtime.position import FilterState

Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.int64]
Codes = npt.NDArray[np.uint8]

_UNSIGNED = struct.pack(">5q", -2, 0, 0, -2, -2)
"""Stands for a missing decision header; no epoch has that claim offset."""
_CLAIM, _NONCE, _SEQ, _SOURCE = 0, slice(1, 3), 3, 4


class Verdict(IntEnum):
    """What the rule says of a record; the names of refusals are the `reason` labels."""

    ACCEPTED = 0
    CLAIM = 1
    EPOCH = 2
    """Decided under another claim than the current one."""
    SEQ = 3
    """Of the current epoch, but a repeat or behind a hole."""


class BrokenChain(RuntimeError):
    """An event passed the rule and answers a command that was answered before: a fault of the
    writer's program that no reader may paper over.
    """


def claimed(state: FilterState, offset: int, nonce: str) -> FilterState:
    """The state after a claim at `offset`; sequence and source go on across epochs."""
    return replace(state, claim_offset=offset, nonce=nonce)


def judge(
    state: FilterState, decision: Decision | None, *, timer: bool
) -> tuple[FilterState, Verdict]:
    """The state after one event, and what became of it. `timer`: no command caused it.

    Raises `BrokenChain`.
    """
    if decision is None or (decision.claim_offset, decision.nonce) != (
        state.claim_offset,
        state.nonce,
    ):
        return state, Verdict.EPOCH
    if decision.seq != state.seq + 1:
        return state, Verdict.SEQ
    if decision.source_offset < state.source_offset + (not timer):
        raise _broken(decision.seq, decision.source_offset, state.source_offset)
    return replace(state, seq=decision.seq, source_offset=decision.source_offset), Verdict.ACCEPTED


@dataclass(frozen=True)
class Accepted:
    """Verdicts of a batch (as `Verdict` codes, one a record) and the state after it."""

    codes: Codes
    state: FilterState

    @property
    def mask(self) -> Bools:
        """The rows that reach a fold."""
        taken: Bools = self.codes == Verdict.ACCEPTED
        return taken

    def rows(self, verdict: Verdict) -> Words:
        """The indexes of the records with that verdict."""
        return np.flatnonzero(self.codes == verdict)


def columns(headers: Iterable[bytes | None]) -> Words:
    """Decision headers as rows of five words (claim offset, nonce in two, seq, source offset).

    None, and a header of another length, belongs to no epoch.
    """
    whole = [
        raw if raw is not None and len(raw) == DECISION_BYTES else _UNSIGNED for raw in headers
    ]
    return np.frombuffer(b"".join(whole), ">i8").reshape(-1, 5).astype(np.int64)


def accept(
    state: FilterState,
    offsets: Sequence[int] | Words,
    decisions: Words,
    claims: Mapping[int, str],
    timer: Callable[[int], bool],
) -> Accepted:
    """The rule for a batch in offset order.

    - `decisions`: as `columns` makes them, one row a record; those of claims are not looked at.
    - `claims`: index in the batch → nonce, of the records that are claims.
    - `timer(index)`: whether a record is a timer's event. Asked only where the answer matters, for
      records that repeat the source offset before them.

    Raises `BrokenChain`.
    """
    codes = np.full(len(decisions), Verdict.EPOCH, np.uint8)
    begin = 0
    for row in sorted(claims):
        state = _run(state, decisions, codes, slice(begin, row), timer)
        codes[row] = Verdict.CLAIM
        state = claimed(state, int(offsets[row]), claims[row])
        begin = row + 1
    rest = slice(begin, len(decisions))
    return Accepted(codes, _run(state, decisions, codes, rest, timer))


def _run(
    state: FilterState,
    decisions: Words,
    codes: Codes,
    between: slice,
    timer: Callable[[int], bool],
) -> FilterState:
    """Judge the records between two claims."""
    part, begin = decisions[between], between.start
    if not part.size or not state.nonce:
        return state
    mine = (part[:, _CLAIM] == state.claim_offset) & (part[:, _NONCE] == _halves(state.nonce)).all(
        axis=1
    )
    rows = np.flatnonzero(mine)
    chained = _chained(part[rows, _SEQ], state.seq)
    codes[begin + rows] = np.where(chained, Verdict.ACCEPTED, Verdict.SEQ)
    taken = rows[chained]
    if not taken.size:
        return state
    _check_sources(part[taken], taken + begin, state, timer)
    last = part[taken[-1]]
    return replace(state, seq=int(last[_SEQ]), source_offset=int(last[_SOURCE]))


def _chained(seq: Words, before: int) -> Bools:
    """Which of these are the next one when their turn comes; usually all."""
    chained: Bools = seq == np.arange(before + 1, before + 1 + seq.size)
    if chained.all():
        return chained
    odd = int(np.argmin(chained))  # up to here all was well
    following = before + 1 + odd
    for at, number in enumerate(seq[odd:].tolist(), odd):
        chained[at] = number == following
        following += number == following
    return chained


def _check_sources(
    taken: Words, rows: Words, state: FilterState, timer: Callable[[int], bool]
) -> None:
    source = taken[:, _SOURCE]
    step = np.diff(source, prepend=state.source_offset)
    for at in np.flatnonzero(step <= 0):
        if step[at] < 0 or not timer(int(rows[at])):
            before = int(source[at] - step[at])
            raise _broken(int(taken[at, _SEQ]), int(source[at]), before)


def _broken(seq: int, source: int, before: int) -> BrokenChain:
    return BrokenChain(
        f"event {seq} answers the command at {source}, but that at {before} has been answered: "
        "two deciders of different versions, or a fault; stop both and look at the log"
    )


def _halves(nonce: str) -> Words:
    return np.frombuffer(bytes.fromhex(nonce), ">i8").astype(np.int64)
