"""How far a read model is folded, and all that is needed to go on from there.

A position is stored *in the sink, with the data*, and moves only by compare-and-set on its
whole encoded value (research rules C1–C4: a bare `offset > last` admits overlapping batches
of a paused writer, two writes in flight, and a store that was restored to an older state).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from streams.runtime.topic import Topic

NO_WATERMARK = -(2**62)
"""Watermark of a partition that has shown no event yet (milliseconds)."""


class SourceState(msgspec.Struct, frozen=True, array_like=True):
    """What a reader of a derived topic has accepted from one source partition (rules B2, B9).

    `offset` and `index` name the last record: the offset of its source row, and its place among
    what was derived from that row. `watermark_ms` is the source partition's watermark as last told.
    `partitions` is how many partitions the source topic has.
    """

    offset: int
    index: int
    watermark_ms: int
    partitions: int


@dataclass(frozen=True)
class FilterState:
    """State of the reader rule of a topic: A2 where a decider writes it, B2 where it is derived.

    Of A2: the current claim's offset and nonce, and of the last accepted event its sequence number
    and the offset of its command. Of B2: the `sources`, by `<id>/<partition>`. `headless`: the
    reader began behind the log's first records, so the first of each source has nothing to follow.
    """

    claim_offset: int = -1
    nonce: str = ""
    seq: int = -1
    source_offset: int = -1
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    headless: bool = False


@dataclass(frozen=True)
class Position:
    """Position of one read model on one partition.

    - `topic_id`: Kafka's id of the topic; a re-created topic has another and stops the reader.
    - `next_offset`: the first offset not folded yet.
    - `low_offset`: the lowest offset that still contributes to open state; a restart replays
      `[low_offset, next_offset)` silently to rebuild that state.
    - `watermark_ms`: event-time watermark at `next_offset`.
    - `low_watermark_ms`: the watermark just *before* the row at `low_offset` (rule C4).
    - `counts`: rows by fate since offset 0, so that `in = sum of the fates` survives crashes.
    - `expired_ms`: per table, the event time before which rows no longer count. It depends on the
      log alone, while a store deletes them when it finds the time.
    - `filter_next`, `filter_low`: state of the reader rule at both offsets.
    """

    topic_id: str
    next_offset: int
    low_offset: int
    watermark_ms: int = NO_WATERMARK
    low_watermark_ms: int = NO_WATERMARK
    counts: Mapping[str, int] = field(default_factory=dict)
    expired_ms: Mapping[str, int] = field(default_factory=dict)
    filter_next: FilterState | None = None
    filter_low: FilterState | None = None

    @classmethod
    def start(cls, topic_id: str, offset: int = 0) -> Position:
        """The position of a reader that has folded nothing and begins at `offset`."""
        return cls(topic_id=topic_id, next_offset=offset, low_offset=offset)

    def encode(self) -> bytes:
        """Canonical bytes: equal positions have equal bytes, so a store can compare them."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def decode(cls, raw: bytes | str) -> Position:
        """The inverse of `encode`; raises `msgspec.ValidationError` on foreign bytes."""
        return msgspec.json.decode(raw, type=cls)

    def with_expired(self, before_ms: Mapping[str, int]) -> Position:
        """This position with retention moved forward; it never moves back."""
        known = dict(self.expired_ms)
        for table, time_ms in before_ms.items():
            if time_ms > NO_WATERMARK // 2:  # else no event has told the time yet
                known[table] = max(time_ms, known.get(table, time_ms))
        return replace(self, expired_ms=known)

    def with_counts(self, more: Mapping[str, int]) -> Position:
        """This position with `more` added to its counts."""
        total = dict(self.counts)
        for fate, rows in more.items():
            if rows:
                total[fate] = total.get(fate, 0) + rows
        return replace(self, counts=total)


def applied(
    positions: Mapping[tuple[str, int], Position], *topics: Topic
) -> dict[tuple[str, int], int]:
    """How far a read model is folded: topic and partition → the first offset that is not.

    A command counts as applied with its event. So of those `topics` that are event topics of
    deciders the command topics are in the answer, too: one past the last decided command.
    """
    found = {at: position.next_offset for at, position in positions.items()}
    commands = {topic.name: topic.decides for topic in topics if topic.decides is not None}
    for (topic, partition), position in positions.items():
        if topic in commands and position.filter_next is not None:
            found[commands[topic], partition] = position.filter_next.source_offset + 1
    return found
