"""From raw records to a batch: decode, take out what is dated ahead of the log, stamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.avro import Decoded
from streams.runtime.batch import OFFSET, Batch
from streams.runtime.lane.span import Span
from streams.runtime.outcome import Fate
from streams.runtime.step import Refused
from streams.runtime.topic import Topic
from streams.runtime.watermark import milliseconds, skewed, stamp

ROW = "_row"


@dataclass(frozen=True)
class Reading:
    """A decoded span: the batch, and the records that are not in it, by offset."""

    batch: Batch
    dead: Sequence[tuple[int, str]] = ()
    tombstones: Sequence[int] = ()

    @property
    def refused(self) -> Refused:
        """The rows that do not reach the fold, by fate."""
        quarantined = [offset for offset, _ in self.dead]
        return Refused({Fate.QUARANTINED: quarantined, Fate.FILTERED: self.tombstones})


def interpret(topic: Topic, span: Span, decoded: Decoded, watermark_ms: int) -> Reading:
    """The batch of a decoded span; `watermark_ms` is the watermark before it."""
    offsets = span.offsets()
    frames, ahead = _unskewed(topic, span, decoded.frames)
    dead = [(int(offsets[one.row]), one.reason) for one in decoded.dead]
    dead += [(int(offsets[row]), "event time is ahead of the log") for row in ahead]
    placed = {name: _with_offsets(frame, offsets) for name, frame in frames.items()}
    stamped, after_ms = stamp(placed, topic.event_time, watermark_ms, topic.out_of_orderness_ms)
    batch = Batch(
        topic, span.seat.partition, span.first_offset, span.next_offset, stamped, after_ms
    )
    return Reading(batch, dead, [int(offsets[row]) for row in decoded.tombstones])


def without(topic: Topic, span: Span, reason: str, watermark_ms: int) -> Reading:
    """The reading of a single record that is not even to be looked at."""
    batch = Batch(topic, span.seat.partition, span.first_offset, span.next_offset, {}, watermark_ms)
    return Reading(batch, [(span.first_offset, reason)])


def _unskewed(
    topic: Topic, span: Span, frames: Mapping[str, pl.DataFrame]
) -> tuple[dict[str, pl.DataFrame], list[int]]:
    """Take out rows whose event time is ahead of their append time by more than allowed.

    Append times never fall inside a partition, so the first one clears a whole span. Where the
    log has none (-1) nothing can be ahead of it.
    """
    dated = {
        name: milliseconds(frame[topic.event_time])
        for name, frame in frames.items()
        if topic.event_time is not None and topic.event_time in frame.columns
    }
    limit = span.first_append_ms + topic.future_skew_ms
    if span.first_append_ms >= 0 and all(_newest(one) <= limit for one in dated.values()):
        return dict(frames), []
    stamps = pl.Series(span.append_ms())
    append_ms = pl.select(pl.when(stamps >= 0).then(stamps)).to_series()
    ahead: list[int] = []
    kept = dict(frames)
    for name, event_ms in dated.items():
        rows = frames[name][ROW]
        mask = skewed(event_ms, append_ms.gather(rows), topic.future_skew_ms)
        ahead += rows.filter(mask).to_list()
        kept[name] = frames[name].filter(~mask)
    return {name: frame for name, frame in kept.items() if frame.height}, sorted(ahead)


def _newest(event_ms: pl.Series) -> int:
    newest = event_ms.max()
    return newest if isinstance(newest, int) else 0


def _with_offsets(frame: pl.DataFrame, offsets: npt.NDArray[Any]) -> pl.DataFrame:
    rows = frame[ROW].to_numpy()
    taken = offsets if len(rows) == len(offsets) else offsets[rows]
    return frame.drop(ROW).hstack([pl.Series(OFFSET, taken.astype(np.int64), pl.Int64)])
