"""Which records of a span count, by the reader rule of their topic.

An event topic of a decider has rule A2 (`decider/filter.py`), a derived topic has rule B2
(`derivation/filter.py`), any other topic has none. What a rule drops reaches no fold, no
window and no watermark; what the runtime wrote for itself (claims, heartbeats) does neither.

Rule A2 is applied after decoding, since a claim's nonce is in its value; rule B2 before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.avro import ROW
from streams.runtime.decider import filter as events
from streams.runtime.decider.records import OWNERSHIP_CLAIMED
from streams.runtime.decider.wire import decision_header, is_timer
from streams.runtime.derivation import filter as derived
from streams.runtime.derivation.wire import columns, source_header
from streams.runtime.lane.span import Span
from streams.runtime.marks import Mark
from streams.runtime.position import FilterState
from streams.runtime.topic import Topic

Rows = npt.NDArray[np.int64]

FOREIGN = "foreign"
"""Why a record was refused that nobody who may write the topic wrote: it has no header."""


def ruled(topic: Topic) -> bool:
    """Whether the topic has a reader rule."""
    return topic.decides is not None or bool(topic.derived_from)


@dataclass(frozen=True)
class Admission:
    """What a reader rule says of the records of a span, by index.

    `accepted` None: all of them. `stale` are the refused ones by reason, `control` those that the
    runtime wrote for itself. `watermarks` (before each record) and `watermark_ms` (after them) are
    None where the rule does not tell event time.
    """

    accepted: Rows | None = None
    stale: Mapping[str, Rows] = field(default_factory=dict)
    control: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    filter_after: FilterState | None = None
    watermarks: Rows | None = None
    watermark_ms: int | None = None


def of_derived(topic: Topic, span: Span, now: Mark) -> Admission:
    """Rule B2, for a span of a derived topic that begins at `now`."""
    found = derived.accept(
        now.filter or FilterState(),
        columns(map(source_header, span.headers())),
        topics=len(topic.derived_from),
        before_ms=now.watermark_ms,
        bound_ms=topic.out_of_orderness_ms,
    )
    verdict = derived.Verdict
    reasons = (verdict.REPEAT, verdict.HOLE, verdict.FOREIGN)
    return Admission(
        None if found.mask.all() else np.flatnonzero(found.mask),
        {one.name.lower(): rows for one in reasons if (rows := found.rows(one)).size},
        found.rows(verdict.HEARTBEAT),
        found.state,
        found.watermarks,
        found.watermark_ms,
    )


def of_events(span: Span, frames: Mapping[str, pl.DataFrame], now: Mark) -> Admission:
    """Rule A2, for a span of a decider's event topic that begins at `now`, decoded to `frames`.

    Raises `BrokenChain`.
    """
    headers = span.headers()
    decisions = [decision_header(one) for one in headers]
    found = events.accept(
        now.filter or FilterState(),
        span.offsets(),
        events.columns(decisions),
        _claims(frames),
        lambda row: is_timer(headers[row]),
    )
    if found.mask.all():
        return Admission(filter_after=found.state)
    verdict = events.Verdict
    epoch = found.rows(verdict.EPOCH)
    signed = np.array([decisions[row] is not None for row in epoch.tolist()], np.bool_)
    stale = {
        "epoch": epoch[signed],
        "seq": found.rows(verdict.SEQ),
        FOREIGN: epoch[~signed],
    }
    return Admission(
        np.flatnonzero(found.mask),
        {reason: rows for reason, rows in stale.items() if rows.size},
        found.rows(verdict.CLAIM),
        found.state,
    )


def unread(topic: Topic, span: Span, now: Mark) -> Admission:
    """The rule for a span whose values are not to be looked at; a claim among them is missed."""
    if topic.derived_from:
        return of_derived(topic, span, now)
    return of_events(span, {}, now) if topic.decides is not None else Admission()


def _claims(frames: Mapping[str, pl.DataFrame]) -> dict[int, str]:
    claims = frames.get(OWNERSHIP_CLAIMED.fullname)
    if claims is None:
        return {}
    return dict(zip(claims[ROW].to_list(), claims["nonce"].to_list(), strict=True))
