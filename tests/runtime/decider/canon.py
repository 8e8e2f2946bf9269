"""The log judged row by row, independently of how owners read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from streams.runtime.decider.codec import Codec
from streams.runtime.decider.filter import BrokenChain, Verdict, claimed, judge
from streams.runtime.decider.folded import Folded
from streams.runtime.decider.records import CommandRejected, OwnershipClaimed
from streams.runtime.decider.rules import Event
from streams.runtime.decider.testing import (
    LogRecord,
)
from streams.runtime.decider.wire import (
    Cause,
    Decision,
    decision_header,
    envelope_of,
    is_timer,
)
from streams.runtime.position import FilterState
from tests.runtime.decider.counting import Violation, digest_of


@dataclass
class Canon:
    """The log, judged row by row, independently of the owner's own reading."""

    folded: Folded
    codec: Codec
    filter: FilterState = field(default_factory=FilterState)
    digests: list[str] = field(default_factory=list)
    """Of the state before each offset, and after the last."""
    sources: int = -1
    accepted: dict[int, tuple[Event, str]] = field(default_factory=dict)
    """Event and correlation id by offset."""
    refused: Counter[Verdict] = field(default_factory=Counter)

    def take(self, offset: int, record: LogRecord) -> None:
        if not self.digests:
            self.digests.append(self.folded.image().digest())
        self._take(offset, record)
        self.digests.append(self.folded.image().digest())

    def _take(self, offset: int, record: LogRecord) -> None:
        name, row = self.codec.decode([record.value])[0]  # type: ignore[misc]
        if isinstance(row, OwnershipClaimed):
            self.filter = claimed(self.filter, offset, row.nonce)
            return
        raw, timer = decision_header(record.headers), is_timer(record.headers)
        assert raw is not None
        decision = Decision.unpack(raw)
        try:
            self.filter, verdict = judge(self.filter, decision, timer=timer)
        except BrokenChain as error:
            raise Violation(str(error)) from error
        if verdict is not Verdict.ACCEPTED:
            self.refused[verdict] += 1
            return
        if not timer and decision.source_offset != self.sources + 1:
            raise Violation(f"lost commands {self.sources + 1} to {decision.source_offset - 1}")
        self.sources = decision.source_offset
        if not isinstance(row, CommandRejected) and row.pre != digest_of(self.folded.state):
            raise Violation(f"the event at {offset} was decided on another state")
        cause = Cause.of(record.headers)
        event = Event(name, row, cause.time_ms)
        self.folded.apply(event, cause.timer)
        self.folded.state.settle()
        envelope = None if timer else envelope_of(record.headers, "")
        event = Event(name, row, cause.time_ms, offset)
        self.folded.settle(event, envelope)
        self.accepted[offset] = (event, envelope.correlation_id if envelope else "")
