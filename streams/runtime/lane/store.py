"""The store as the pump uses it: one thread at a time, patient, and sure of what it wrote."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

import polars as pl

from streams.runtime.kafka import LogBounds
from streams.runtime.lane.admission import ruled
from streams.runtime.lane.bounds import LogMismatch, check_against_log, check_partitions
from streams.runtime.lane.patience import Patience
from streams.runtime.lane.span import Seat
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.sink import FenceRefused, SinkRejected, SinkUnavailable, Write
from streams.runtime.step import Memory, restore


class WriteSide(Protocol):
    """The part of a `Sink` that a lane uses."""

    def live_version(self) -> int: ...
    def prepare(self, version: int) -> None: ...
    def load(self, version: int, topic: str, partition: int) -> Position | None: ...
    def write(self, version: int, write: Write) -> None: ...
    def rows(
        self, version: int, table: str, partition: int | None = None
    ) -> Iterator[pl.DataFrame]: ...
    def close(self) -> None: ...


class Store:
    """One read model in its store. `version` None follows the live version.

    All methods wait while the store is down; they raise `Stopped` as `Patience` does, and
    `FenceRefused` when somebody else moved the position.
    """

    def __init__(
        self, projection: Projection, sink: WriteSide, patience: Patience, version: int | None
    ) -> None:
        self._projection = projection
        self._sink = sink
        self._patience = patience
        self._follows = version is None
        self._version = version or 1
        self._lock = threading.Lock()

    def load(self, seat: Seat, ask: Callable[[], LogBounds]) -> tuple[Memory, LogBounds]:
        """Position and state that a reader of this seat begins with, and the log's bounds; waits
        while the version is sealed. `ask` asks the broker. Raises `LogMismatch`.
        """
        return self._patience(seat, lambda: self._load(seat, ask))

    def _load(self, seat: Seat, ask: Callable[[], LogBounds]) -> tuple[Memory, LogBounds]:
        with self._lock:
            if self._follows:
                self._version = self._sink.live_version()
            self._sink.prepare(self._version)
            stored, bounds = self._agreeing(seat, ask)
            tables = {name: self._rows(name, seat.partition) for name in self._projection.restores}
        memory = restore(self._projection, bounds.topic_id, stored, tables, begin=bounds.start)
        return memory, bounds

    def _agreeing(
        self, seat: Seat, ask: Callable[[], LogBounds]
    ) -> tuple[Position | None, LogBounds]:
        """Position and bounds that belong together.

        They are asked one after the other, and another owner may move the position meanwhile. Only
        a position that has not moved can say that the log does not fit it.
        """
        stored = self._begun(seat)
        while True:
            bounds = ask()
            check_partitions(self._projection.name, self._projection.topic, bounds)
            try:
                rule = ruled(self._projection.topic)
                check_against_log(self._projection.name, seat, stored, bounds, ruled=rule)
            except LogMismatch:
                before, stored = stored, self._begun(seat)
                if stored == before:
                    raise
            else:
                return stored, bounds

    def _begun(self, seat: Seat) -> Position | None:
        """The position, while the version is not sealed."""
        try:
            return self._position(seat)
        except FenceRefused as sealed:  # a rebuild is about to switch versions
            raise SinkRejected(str(sealed), transient=True) from sealed

    def _rows(self, table: str, partition: int) -> pl.DataFrame:
        frames = list(self._sink.rows(self._version, table, partition))
        if frames:
            return pl.concat(frames)
        columns = self._projection.model.table(table).columns
        return pl.DataFrame(schema={**columns, "_partition": pl.Int32})

    def write(self, seat: Seat, write: Write) -> None:
        """Return when the write is durable."""
        self._until_durable(seat, write, lambda: self._sink.write(self._version, write))

    def _until_durable(self, seat: Seat, write: Write, act: Callable[[], None]) -> None:
        """After an unknown outcome a refusal is a question: was it our own write?"""
        unknown = False

        def attempt() -> None:
            nonlocal unknown
            with self._lock:
                try:
                    act()
                except SinkUnavailable:
                    unknown = True
                    raise
                except FenceRefused:
                    if not unknown or self._position(seat) != write.position:
                        raise

        self._patience(seat, attempt)

    def wait_for_writes(self, seat: Seat) -> None:
        """Wait until the store takes a write that changes nothing: one that refuses even this
        (a password, a permission, a setting) is not refusing the record it was sent.
        """
        memory: Memory = seat.memory
        before = memory.position if memory.stored else None
        empty = Write(seat.topic, seat.partition, before, memory.position)

        def write() -> None:
            try:
                self._sink.write(self._version, empty)
            except SinkRejected as error:
                raise SinkRejected(str(error), transient=True) from error

        self._until_durable(seat, empty, write)
        seat.memory = replace(memory, stored=True)

    def look(self, seat: Seat) -> None:
        """Raise `FenceRefused` when the store no longer holds the position it should."""
        memory: Memory = seat.memory

        def compare() -> None:
            with self._lock:
                if memory.stored and self._position(seat) != memory.position:
                    raise FenceRefused(f"{seat.name}: the position has moved while idle")

        self._patience(seat, compare)

    def _position(self, seat: Seat) -> Position | None:
        return self._sink.load(self._version, seat.topic, seat.partition)
