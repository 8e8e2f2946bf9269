"""One step of a projection on one partition: a batch in, a fenced write out. Pure.

The lane and the test harness run this same code; they only differ in where batches come from and
where writes go. A step

1. cuts the batch at the stored position: rows below it are a replay, folded for the state alone;
   nothing of them is written, counted or reported (rule C7);
2. folds the rest and checks that every row has a fate;
3. moves the position: next, low, both watermarks, both reader-rule states, counts (C4, C5).

`Memory` is immutable. After a refused write, drop it and `restore`; after a failed fold, cut the
batch and try again with the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from streams.runtime.batch import Batch
from streams.runtime.marks import Mark, Marks
from streams.runtime.outcome import Outcome
from streams.runtime.position import FilterState, Position
from streams.runtime.projection import Projection
from streams.runtime.sink import Write


@dataclass(frozen=True)
class Memory:
    """What a reader keeps of one partition between batches.

    - `position`: as stored, or as it will be once the last write has landed.
    - `stored`: False until the first write: there is nothing to compare with yet.
    - `now`: the first offset not folded into `state`, the watermark and reader-rule state there;
      below `position.next_offset` while replaying. The lane reads, filters and stamps from here.
    """

    state: Any
    position: Position
    stored: bool
    now: Mark
    marks: Marks = field(default_factory=Marks)

    @property
    def replaying(self) -> bool:
        """The state does not reach the stored position yet."""
        return self.now.offset < self.position.next_offset


@dataclass(frozen=True)
class Refused:
    """Rows that never reached the fold, as offsets by fate (stale, quarantined), and the reader
    rule's state after the batch.
    """

    offsets: Mapping[str, Sequence[int]] = field(default_factory=dict)
    filter_after: FilterState | None = None


@dataclass(frozen=True)
class Step:
    """What came of a batch. `write` and `outcome` are None when all of it was replay."""

    memory: Memory
    write: Write | None = None
    outcome: Outcome | None = None


def restore(
    projection: Projection,
    topic_id: str,
    stored: Position | None,
    rows: Mapping[str, pl.DataFrame] | None = None,
    *,
    begin: int = 0,
) -> Memory:
    """Memory of a reader that starts or starts over; the next batch begins at `memory.now`.

    `stored` is the sink's position, loaded *before* `rows`, the stored rows of the projection's
    `restores` tables. Without a position the reader begins at offset `begin`. Raises `ValueError`
    when the topic was re-created.
    """
    position = Position.start(topic_id, begin) if stored is None else stored
    if position.topic_id != topic_id:
        raise ValueError(
            f"{projection.name} is at topic id {position.topic_id}, the topic now is {topic_id}"
        )
    low = Mark(position.low_offset, position.low_watermark_ms, position.filter_low)
    return Memory(projection.fold.start(rows or {}), position, stored is not None, low)


def advance(
    projection: Projection, memory: Memory, batch: Batch, refused: Refused | None = None
) -> Step:
    """Fold `batch`, which begins at or after `memory.now.offset` (gaps are normal).

    Raises `ValueError` for an older batch, `RowsLost` for a fold that loses count, and whatever
    the fold raises; `memory` is as good as before in all cases.
    """
    if batch.first_offset < memory.now.offset:
        raise ValueError(f"batch at {batch.first_offset}, folded up to {memory.now.offset}")
    refused = refused or Refused(filter_after=memory.now.filter)
    stop = memory.position.next_offset
    if batch.next_offset <= stop:
        memory, _ = _fold(projection, memory, batch, refused.filter_after)
        return Step(memory)
    if batch.first_offset < stop:
        # What moved the watermark need not be in the frames: the stored one is the right one.
        replayed = replace(
            batch.between(batch.first_offset, stop), watermark_ms=memory.position.watermark_ms
        )
        memory, _ = _fold(projection, memory, replayed, memory.position.filter_next)
        batch = batch.between(stop, batch.next_offset)
    memory, outcome = _fold(projection, memory, batch, refused.filter_after)
    counts = dict(outcome.counts)
    for fate, offsets in refused.offsets.items():
        counts[fate] = counts.get(fate, 0) + sum(offset >= stop for offset in offsets)
    low = memory.marks.low(memory.now)
    position = replace(
        memory.position.with_counts(counts).with_expired(outcome.expire_before_ms),
        next_offset=memory.now.offset,
        watermark_ms=memory.now.watermark_ms,
        filter_next=memory.now.filter,
        low_offset=low.offset,
        low_watermark_ms=low.watermark_ms,
        filter_low=low.filter,
    )
    write = Write(
        topic=batch.topic.name,
        partition=batch.partition,
        expected=memory.position if memory.stored else None,
        position=position,
        changes=outcome.changes,
        expire_before_ms=outcome.expire_before_ms,
    )
    return Step(replace(memory, position=position, stored=True), write, outcome)


def flush(projection: Projection, memory: Memory, topic: str, partition: int) -> Write | None:
    """What an idle partition shows early: an empty span under the same fence (rule C2).

    None while replaying, before anything is stored, and when there is nothing to show.
    """
    if memory.replaying or not memory.stored:
        return None
    changes = projection.fold.provisional(memory.state)
    if not changes:
        return None
    return Write(topic, partition, memory.position, memory.position, changes)


def join(first: Write, second: Write) -> Write:
    """Two writes in a row as one, for a store that wants few large ones.

    Raises `ValueError` unless `second` begins where `first` ends.
    """
    if (first.topic, first.partition, first.position) != (
        second.topic,
        second.partition,
        second.expected,
    ):
        raise ValueError("writes do not follow each other")
    expire = dict(first.expire_before_ms)
    for table, time_ms in second.expire_before_ms.items():
        expire[table] = max(time_ms, expire.get(table, time_ms))
    return replace(
        second,
        expected=first.expected,
        changes=(*first.changes, *second.changes),
        expire_before_ms=expire,
    )


def _fold(
    projection: Projection, memory: Memory, batch: Batch, filter_after: FilterState | None
) -> tuple[Memory, Outcome]:
    state, outcome = projection.fold.fold(memory.state, batch)
    outcome.check(batch.height)
    start = replace(memory.now, offset=batch.first_offset)
    after = Mark(batch.next_offset, batch.watermark_ms, filter_after)
    marks = memory.marks.add(start, outcome).settle(after.watermark_ms)
    return replace(memory, state=state, now=after, marks=marks), outcome
