"""From raw records to a batch: decode, apply the topic's reader rule, take out what is dated ahead
of the log, stamp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.avro import ROW, Decoded
from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.lane.admission import Admission, Rows, of_derived, of_events, unread
from streams.runtime.lane.span import Span
from streams.runtime.marks import Mark
from streams.runtime.outcome import Fate
from streams.runtime.position import FilterState, Position
from streams.runtime.step import Refused
from streams.runtime.topic import Topic
from streams.runtime.watermark import milliseconds, skewed, stamp

Decode = Callable[[Sequence[bytes | None]], Decoded]


@dataclass(frozen=True)
class Reading:
    """A decoded span: the batch, and the records that are not in it, by offset.

    `stale` are those that the reader rule refused, by reason.
    """

    batch: Batch
    dead: Sequence[tuple[int, str]] = ()
    tombstones: Sequence[int] = ()
    stale: Mapping[str, Sequence[int]] = field(default_factory=dict)
    control: Sequence[int] = ()
    filter_after: FilterState | None = None

    @property
    def refused(self) -> Refused:
        """The rows that do not reach the fold, by fate, and the reader rule's state after all."""
        fates: dict[str, Sequence[int]] = {
            Fate.QUARANTINED: [offset for offset, _ in self.dead],
            Fate.FILTERED: self.tombstones,
            Fate.STALE: [offset for offsets in self.stale.values() for offset in offsets],
            Fate.CONTROL: self.control,
        }
        return Refused(fates, self.filter_after)

    def stale_since(self, expected: Position | None) -> dict[str, int]:
        """How many records the reader rule refused, by reason, that are not of `expected` already:
        the position that a write of this reading takes the place of.
        """
        fresh = expected.next_offset if expected else 0
        return {
            reason: sum(offset >= fresh for offset in offsets)
            for reason, offsets in self.stale.items()
        }


def read(topic: Topic, span: Span, decode: Decode, now: Mark) -> Reading:
    """The batch of a span that begins at `now`. Raises `RegistryUnavailable` and `BrokenChain`."""
    if topic.derived_from:
        admission = of_derived(topic, span, now)
        rows = admission.accepted
        if rows is None:
            decoded = decode(span.values())
        else:
            decoded = _placed(decode(span.values_at(rows.tolist())), rows)
    else:
        decoded = decode(span.values())
        admission = Admission()
        if topic.decides is not None:
            admission = of_events(span, decoded.frames, now)
            decoded = _only(decoded, admission.accepted, len(span))
    return _interpret(topic, span, decoded, admission, now)


def without(topic: Topic, span: Span, reason: str, now: Mark) -> Reading:
    """The reading of a single record whose value is not even to be looked at."""
    admission = unread(topic, span, now)
    after_ms = now.watermark_ms if admission.watermark_ms is None else admission.watermark_ms
    batch = Batch(topic, span.seat.partition, span.first_offset, span.next_offset, {}, after_ms)
    return Reading(batch, [(span.first_offset, reason)], filter_after=admission.filter_after)


def _interpret(
    topic: Topic, span: Span, decoded: Decoded, admission: Admission, now: Mark
) -> Reading:
    offsets = span.offsets()
    dead = [(int(offsets[one.row]), one.reason) for one in decoded.dead]
    if admission.watermarks is None or admission.watermark_ms is None:
        frames, ahead = _unskewed(topic, span, decoded.frames)
        dead += [(int(offsets[row]), "event time is ahead of the log") for row in ahead]
        placed = {name: _with_offsets(frame, offsets) for name, frame in frames.items()}
        frames, after_ms = stamp(
            placed, topic.event_time, now.watermark_ms, topic.out_of_orderness_ms
        )
    else:
        # The source has told event time, and judged it against the log when it was read (C9).
        frames, after_ms = (
            _told(decoded.frames, offsets, admission.watermarks),
            admission.watermark_ms,
        )
    first, following = span.first_offset, span.next_offset
    return Reading(
        Batch(topic, span.seat.partition, first, following, frames, after_ms),
        dead,
        [int(offsets[row]) for row in decoded.tombstones],
        {reason: offsets[rows].tolist() for reason, rows in admission.stale.items()},
        offsets[admission.control].tolist(),
        admission.filter_after,
    )


def _placed(decoded: Decoded, rows: Rows) -> Decoded:
    """What was decoded of the records at `rows`, as part of the whole span."""
    return Decoded(
        {
            name: frame.with_columns(pl.Series(ROW, rows[frame[ROW].to_numpy()]))
            for name, frame in decoded.frames.items()
        },
        [replace(one, row=int(rows[one.row])) for one in decoded.dead],
        [int(rows[row]) for row in decoded.tombstones],
    )


def _only(decoded: Decoded, accepted: Rows | None, records: int) -> Decoded:
    """What was decoded of the accepted records."""
    if accepted is None:
        return decoded
    mask = np.zeros(records, np.bool_)
    mask[accepted] = True
    frames = {
        name: frame.filter(pl.Series(mask[frame[ROW].to_numpy()]))
        for name, frame in decoded.frames.items()
    }
    return Decoded(
        {name: frame for name, frame in frames.items() if frame.height},
        [one for one in decoded.dead if mask[one.row]],
        [row for row in decoded.tombstones if mask[row]],
    )


def _told(
    frames: Mapping[str, pl.DataFrame], offsets: Rows, watermarks: Rows
) -> dict[str, pl.DataFrame]:
    return {
        name: _with_offsets(frame, offsets).hstack(
            [pl.Series(WATERMARK, watermarks[frame[ROW].to_numpy()])]
        )
        for name, frame in frames.items()
    }


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
