"""A file or a frame to a topic: read, map, check, pace, send, and account for every row."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import polars as pl

from connectors.bulk import BulkProducer
from connectors.encode import Encoder
from connectors.mapping import Mapper
from connectors.readers import Rejected, read
from schemas.registry import schema_ids
from streams.runtime.settings import Settings
from streams.runtime.topic import RecordType, Topic

SLICE_ROWS = 10_000
PACE_MS = 50
"""Rows that are due within this time go out together."""

Progress = Callable[[int], None]
"""Called with the number of rows that were just sent."""


class Sender(Protocol):
    """Where rows go: a `BulkProducer`, or nowhere (`DryRun`)."""

    def send(self, record_name: str, frame: pl.DataFrame) -> int: ...


@dataclass(frozen=True)
class Report:
    """What became of the rows: `rows == sent + rejected`."""

    sent: int
    rejected: int
    rejected_file: Path | None

    @property
    def rows(self) -> int:
        """Rows of the file (up to the limit)."""
        return self.sent + self.rejected


class DryRun:
    """Encodes rows and sends nothing."""

    def __init__(self, topic: Topic) -> None:
        self._encoder = Encoder(topic, {record.fullname: 0 for record in topic.records})

    def send(self, record_name: str, frame: pl.DataFrame) -> int:
        """Encode the rows; returns how many. Raises `EncodeError`."""
        writer = self._encoder.writer(record_name)
        names = [name for name in frame.columns if not name.startswith("_")]
        for row in frame.select(names).iter_rows(named=True):
            writer(row)
        return frame.height


class Pace:
    """Lets rows go when their event time comes, `speed` times as fast as it did; 0: at once.

    Time 0 is the first row's event time. A row that is older than one before it goes with it,
    so the order of the file stays.
    """

    def __init__(
        self,
        column: str | None,
        speed: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if speed < 0:
            raise ValueError("speed must not be negative")
        if speed and column is None:
            raise ValueError("this topic has no event time to go by: only full speed")
        self._column, self._speed = column, speed
        self._clock, self._sleep = clock, sleep
        self._start_s: float | None = None
        self._first_ms = self._latest_ms = 0

    def slices(self, frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """The frame in pieces, each when it is due."""
        if not self._speed or self._column is None:
            yield from frame.iter_slices(SLICE_ROWS)
            return
        if not frame.height:
            return
        times = frame[self._column].cast(pl.Int64)
        if self._start_s is None:
            self._start_s, self._first_ms = self._clock(), times[0]
            self._latest_ms = times[0]
        due = pl.Series(times.cum_max().clip(lower_bound=self._latest_ms))
        self._latest_ms = due[-1]
        at = 0
        while at < frame.height:
            self._wait_for(due[at])
            stop = int(due.search_sorted(due[at] + max(1, int(PACE_MS * self._speed)), "left"))
            yield frame[at:stop]
            at = stop

    def _wait_for(self, event_ms: int) -> None:
        assert self._start_s is not None
        wait_s = self._start_s + (event_ms - self._first_ms) / 1_000 / self._speed - self._clock()
        if wait_s > 0:
            self._sleep(wait_s)


def produce_file(
    path: Path,
    mapper: Mapper,
    sender: Sender,
    pace: Pace,
    *,
    limit: int | None = None,
    progress: Progress = lambda _rows: None,
) -> Report:
    """Send the rows of a file that fit; write those that do not to `<file>.rejected.jsonl`, each
    with its line and the reason. Raises `UnreadableFile`, `BadMapping`, `Undelivered`; all that
    was rejected until then is in the file.
    """
    sent = 0
    left = limit
    with _Rejects(path.with_name(f"{path.name}.rejected.jsonl")) as rejects:
        for chunk in read(path):
            frame, bad_lines = chunk.frame, list(chunk.rejected)
            if left is not None:
                frame, bad_lines = _first(left, frame, bad_lines)
                left -= frame.height + len(bad_lines)
            good, bad_rows = mapper.apply(frame) if frame.height else (frame, [])
            rejects.write(sorted([*bad_lines, *bad_rows], key=lambda r: r.line))
            for piece in pace.slices(good):
                sent += sender.send(mapper.record.name, piece)
                progress(piece.height)
            if left == 0:
                break
    return Report(sent, rejects.count, rejects.path if rejects.count else None)


def produce_frame(
    frame: pl.DataFrame,
    topic: Topic,
    record: RecordType,
    settings: Settings,
    progress: Progress = lambda _rows: None,
    *,
    speed: float = 0,
) -> int:
    """Send a frame whose columns are the record's fields; returns the rows when all are in the
    log. For many frames keep one `open_bulk`. Raises `EncodeError` and `Undelivered`.
    """
    with open_bulk(topic, settings) as bulk:
        for piece in Pace(topic.event_time, speed).slices(frame):
            progress(bulk.send(record.name, piece))
    return bulk.sent


def open_bulk(topic: Topic, settings: Settings) -> BulkProducer:
    """A bulk producer with the schema ids of the registry."""
    return BulkProducer(settings.kafka, Encoder(topic, schema_ids(topic, settings.registry)))


def open_sender(
    topic: Topic, settings: Settings, *, dry_run: bool
) -> AbstractContextManager[Sender]:
    """The real sender, or one that sends nothing."""
    return nullcontext(DryRun(topic)) if dry_run else open_bulk(topic, settings)


def _first(
    count: int, frame: pl.DataFrame, bad: list[Rejected]
) -> tuple[pl.DataFrame, list[Rejected]]:
    """The first rows of a chunk by line, good or bad."""
    lines = sorted(itertools.chain(frame["_line"].to_list(), (r.line for r in bad)))[:count]
    last = lines[-1] if lines else 0
    return frame.filter(pl.col("_line") <= last), [r for r in bad if r.line <= last]


class _Rejects:
    """The file of rejected rows; made when the first one comes, an older one is removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self._file: Any = None

    def __enter__(self) -> _Rejects:
        self.path.unlink(missing_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, rejected: list[Rejected]) -> None:
        """Append rows."""
        if rejected and self._file is None:
            self._file = self.path.open("w", encoding="utf-8")
        for row in rejected:
            content = {"line": row.line, "reason": row.reason, "row": row.content}
            self._file.write(json.dumps(content, default=str) + "\n")
            self.count += 1
