"""A derivation as a projection: the records of the target topic are rows of one table.

The lane then treats it as any other: the same reader, decoding, reader rules, halving down to a bad
record, dead letters and counts; only where the rows go differs (`target`). A derived record has a
key of its own, the offset of its source row and its place among what that row led to, so that to
write it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from streams.runtime.batch import OFFSET, WATERMARK, Batch
from streams.runtime.derivation.partition import partitions_of
from streams.runtime.derivation.rules import Derivation
from streams.runtime.outcome import Fate, Outcome
from streams.runtime.projection import Projection
from streams.runtime.sink import Changes, ReadModel, Table, Upsert
from streams.runtime.topic import Topic

RECORDS = Table(
    "records",
    {"offset": pl.Int64, "index": pl.Int64},
    {"partition": pl.Int64, "watermark_ms": pl.Int64, "key": pl.Binary, "value": pl.Binary},
    append=True,
)
"""Records of the target topic by source row, in the order in which they are sent. `watermark_ms` is
the source partition's watermark before the source row.
"""

MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default `max.message.bytes`."""
OVERHEAD_BYTES = 1_024
"""Room for the headers of a record and its batch."""

ROWS_MAX = 16_384
"""Source rows that are derived and sent at once; each may lead to many."""

Encode = Callable[[str, pl.DataFrame], Iterable[tuple[bytes, bytes]]]
"""Keys and framed Avro values of rows, by the record's full name; columns that begin with an
underscore are left out. Raises `ValueError` for a bad row."""

Words = npt.NDArray[np.int64]


def as_projection(derivation: Derivation, encode: Encode) -> Projection:
    """The derivation as the lane runs it. Raises `ValueError` where event time would be lost: a
    target that has it needs a source that has it.
    """
    if derivation.target.event_time is not None and derivation.source.event_time is None:
        raise ValueError(
            f"{derivation.name}: {derivation.target.name} has event time, but its source "
            f"{derivation.source.name} has none that could be told"
        )
    if derivation.source.name not in derivation.target.derived_from:
        raise ValueError(
            f"{derivation.name}: {derivation.target.name} is not declared as derived from "
            f"{derivation.source.name}, so its readers would not apply rule B2"
        )
    return Projection(
        derivation.name,
        derivation.source,
        Deriving(derivation, encode),
        ReadModel(derivation.name, (RECORDS,)),
        store="kafka",
        columns=derivation.columns,
        rows_max=ROWS_MAX,
        late_output=False,
    )


@dataclass(frozen=True)
class Deriving:
    """The fold of a derivation. It has no state: rows are derived one by one."""

    derivation: Derivation
    encode: Encode

    def start(self, stored: Mapping[str, pl.DataFrame]) -> None:
        return None

    def fold(self, state: None, batch: Batch) -> tuple[None, Outcome]:
        """Rows that lead to nothing are `filtered`. Raises `ValueError` for rows that are not the
        target's.
        """
        derived = self.derivation.derive(batch)
        offsets, watermarks = _source_rows(batch)
        rows = _records(self.derivation, derived, self.encode, offsets, watermarks)
        applied = rows["offset"].n_unique()
        counts: dict[str, int] = {Fate.APPLIED: applied, Fate.FILTERED: batch.height - applied}
        return None, Outcome([Upsert(RECORDS, rows)] if rows.height else [], counts)

    def provisional(self, state: None) -> list[Changes]:
        """Nothing; but an idle partition has its watermark told (B9), which any write does."""
        return [Upsert(RECORDS, pl.DataFrame(schema=RECORDS.columns))]


def largest(topic: Topic) -> int:
    """The bytes that key and value of a record of the topic may have together."""
    return int(topic.extra.get("max.message.bytes", MESSAGE_BYTES_MAX)) - OVERHEAD_BYTES


def _source_rows(batch: Batch) -> tuple[Words, Words]:
    """Offsets of the batch's rows, in order, and the watermark before each."""
    frames = list(batch.frames.values())
    if not frames:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    offsets, watermarks = (
        np.concatenate([frame[name].to_numpy() for frame in frames]) for name in (OFFSET, WATERMARK)
    )
    if len(frames) == 1:
        return offsets, watermarks
    order = np.argsort(offsets, kind="stable")
    return offsets[order], watermarks[order]


def _records(
    derivation: Derivation,
    derived: Mapping[str, pl.DataFrame],
    encode: Encode,
    offsets: Words,
    watermarks: Words,
) -> pl.DataFrame:
    """Rows of `RECORDS`: by source row, then by the target's order of record types."""
    target = derivation.target
    foreign = derived.keys() - {record.fullname for record in target.records}
    if foreign:
        raise ValueError(f"{derivation.name}: {target.name} does not carry {sorted(foreign)}")
    keys: list[bytes] = []
    values: list[bytes] = []
    sources: list[Words] = []
    for record in target.records:
        frame = derived.get(record.fullname)
        if frame is not None and frame.height:
            encoded_keys, encoded = zip(*encode(record.fullname, frame), strict=True)
            keys += encoded_keys
            values += encoded
            sources.append(frame[OFFSET].to_numpy())
    at = np.concatenate(sources) if sources else np.empty(0, np.int64)
    _check_sources(derivation.name, at, offsets)
    _check_sizes(derivation, keys, values)
    rows = pl.DataFrame(
        {
            "offset": at,
            "index": 0,
            "partition": partitions_of(keys, target.partitions),
            "watermark_ms": watermarks[np.searchsorted(offsets, at)],
            "key": keys,
            "value": values,
        },
        schema=RECORDS.columns,
    )
    if len(sources) > 1 or not rows["offset"].is_sorted():
        rows = rows.sort("offset", maintain_order=True)
    return rows.with_columns(pl.Series("index", _places(rows["offset"].to_numpy())))


def _places(at: Words) -> Words:
    """The place of each row among those of the same source row."""
    numbers = np.arange(at.size)
    first = np.diff(at, prepend=-1) != 0
    return numbers - np.maximum.accumulate(np.where(first, numbers, 0))


def _check_sources(name: str, at: Words, offsets: Words) -> None:
    known = np.isin(at, offsets)
    if not known.all():
        raise ValueError(f"{name}: derived from offset {at[~known][0]}, which was not asked")


def _check_sizes(derivation: Derivation, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
    """A record that the topic cannot take is found before anything of its source row is sent."""
    most = largest(derivation.target)
    largest_value = max(map(len, values), default=0)
    if largest_value + max(map(len, keys), default=0) > most:
        raise ValueError(f"{derivation.name}: a record of {largest_value} bytes, {most} at most")
