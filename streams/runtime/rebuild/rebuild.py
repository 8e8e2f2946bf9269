"""The steps of a rebuild, in order. See the package's docstring for the promise."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog
from confluent_kafka import Consumer

from streams.runtime.dead_letters import Outbox
from streams.runtime.decoding import Decodes
from streams.runtime.kafka import LogBounds
from streams.runtime.lane.feed import Feed
from streams.runtime.lane.pump import Pump
from streams.runtime.lane.span import Seat
from streams.runtime.metrics import AgentMetrics
from streams.runtime.position import Position
from streams.runtime.projection import Projection
from streams.runtime.rebuild.pipeline import Pipeline
from streams.runtime.rebuild.source import Source
from streams.runtime.sink import Sink

POLL_S = 0.25
STALL_S = 120.0
"""Without any row for this long while rows are owed, a rebuild gives up with an error."""
READER_CACHE_S = 1.0
"""How long readers may still look at the old version after the switch."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Progress:
    """How far a rebuild is: rows folded and owed, seconds, and the step it is in."""

    rows: int
    target_rows: int
    seconds: float
    step: str


@dataclass(frozen=True)
class Report:
    """What a rebuild did. `comparison` is None when the live version held nothing to compare."""

    version: int
    replaced: int
    rows: int
    seconds: float
    paused_s: float
    comparison: Any


class Differs(RuntimeError):
    """The rebuilt version is not what the live one says; the live one goes on answering."""

    def __init__(self, message: str, comparison: Any) -> None:
        super().__init__(message)
        self.comparison = comparison


@dataclass
class Rebuild:
    """One rebuild of one read model.

    `compare(live, rebuilt)` is called while both versions stand still at equal positions; it
    returns something printable that is true when they are equal. `keep_old` leaves the replaced
    version in the store.
    """

    projection: Projection
    sink: Sink
    decoder: Decodes
    outbox: Outbox
    metrics: AgentMetrics
    reading: tuple[Consumer, Feed]
    bounds: Callable[[Seat], LogBounds]
    compare: Callable[[int, int], Any] | None = None
    progress: Callable[[Progress], None] = lambda _: None
    keep_old: bool = False
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> Report:
        """Build, compare, switch. Raises `Differs`; the live version is never left sealed."""
        self._began = time.monotonic()
        live = self.sink.live_version()
        self.sink.unseal(live)  # an earlier rebuild may have died between seal and switch
        version = self._version(live)
        self.sink.prepare(version)
        source, pipeline, seats = self._open(version)
        try:
            self._fold(source, pipeline, seats, lambda: self._targets(live, seats), "folding")
            paused = time.monotonic()
            try:
                sealed = self.sink.seal(live)
                self._catch_up(source, pipeline, seats, sealed)
                comparison = self._compare(seats, live, version, sealed)
                self.sink.switch(version)
            finally:
                self.sink.unseal(live)
            paused_s = time.monotonic() - paused
        finally:
            source.stop()
            pipeline.close()
        rows = sum(seat.memory.position.next_offset for seat in seats)
        if not self.keep_old:
            time.sleep(READER_CACHE_S)
            self.sink.drop(live)
        return Report(version, live, rows, time.monotonic() - self._began, paused_s, comparison)

    def _version(self, live: int) -> int:
        """The version to build: the unfinished one of an earlier run, or a new one."""
        unfinished = [version for version in self.sink.versions() if version > live]
        return max(unfinished, default=live + 1)

    def _open(self, version: int) -> tuple[Source, Pipeline, list[Seat]]:
        topic = self.projection.topic
        pump = Pump(
            self.projection,
            self.sink,
            self.decoder,
            self.outbox,
            self.metrics,
            bounds=self.bounds,
            restart=_nobody_else_writes,
            commit=lambda _seat, _offset: None,
            stopping=self.stopping,
            version=version,
        )
        seats = [Seat(topic.name, partition) for partition in range(topic.partitions)]
        starts = {seat: pump.locate(seat) for seat in seats}
        targets = {seat.partition: starts[seat] for seat in seats}
        source = Source(self.reading, starts, targets, self.projection.rows_max)
        source.start()
        pipeline = Pipeline(
            self.projection,
            self.sink,
            self.decoder,
            pump,
            self.metrics,
            bounds=self.bounds,
            version=version,
            stopping=self.stopping,
        )
        return source, pipeline, seats

    def _targets(self, live: int, seats: list[Seat]) -> Mapping[int, int]:
        """Where the live version stands; where the log ends, when it holds nothing."""
        positions = self.sink.positions(live)
        if not positions:
            return {seat.partition: self.bounds(seat).end for seat in seats}
        topic = self.projection.topic.name
        return {
            seat.partition: positions[topic, seat.partition].next_offset
            for seat in seats
            if (topic, seat.partition) in positions
        }

    def _fold(
        self,
        source: Source,
        pipeline: Pipeline,
        seats: list[Seat],
        aim: Callable[[], Mapping[int, int]],
        step: str,
    ) -> None:
        """Fold until every partition has reached its target; nothing is in flight then."""
        asked = pipeline.ask(aim)
        targets = asked.result()
        source.aim(targets)
        aimed = heard = time.monotonic()
        while not (_reached(seats, targets) and not pipeline.busy):
            now = time.monotonic()
            if asked.done() and now - aimed >= POLL_S:
                targets, aimed = asked.result(), now
                asked = pipeline.ask(aim)
                source.aim(targets)
                self._tell(seats, targets, step)
            span = source.next(POLL_S)
            if span is not None:
                pipeline.take(span)
                heard = now
            if pipeline.busy and (span is None or pipeline.reaches(targets)):
                pipeline.finish()
            elif span is None and now - heard > STALL_S:
                raise TimeoutError(f"{self.projection.name}: no rows for {STALL_S:.0f} s")
        asked.result()

    def _tell(self, seats: list[Seat], targets: Mapping[int, int], step: str) -> None:
        rows = sum(seat.memory.now.offset for seat in seats)
        seconds = time.monotonic() - self._began
        self.metrics.rebuilding(rows, sum(targets.values()), seconds)
        self.progress(Progress(rows, sum(targets.values()), seconds, step))

    def _catch_up(
        self,
        source: Source,
        pipeline: Pipeline,
        seats: list[Seat],
        sealed: Mapping[tuple[str, int], Position],
    ) -> None:
        """Bring the new version to exactly where the sealed one stands."""
        targets = {partition: at.next_offset for (_, partition), at in sealed.items()}
        self._fold(source, pipeline, seats, lambda: targets, "catching up")

    def _compare(
        self,
        seats: list[Seat],
        live: int,
        version: int,
        sealed: Mapping[tuple[str, int], Position],
    ) -> Any:
        """The comparison of both versions; None when there is nothing to compare."""
        if self.compare is None or not sealed:
            return None
        self._tell(seats, {}, "comparing")
        wrong = _counts_differ(sealed, self.sink.positions(version))
        comparison = self.compare(live, version)
        if wrong or not comparison:
            raise Differs(f"{self.projection.name}: version {version} differs. {wrong}", comparison)
        return comparison


def abort(sink: Sink) -> list[int]:
    """Undo an interrupted rebuild: lift the seal of the live version, drop unfinished ones."""
    live = sink.live_version()
    sink.unseal(live)
    unfinished = [version for version in sink.versions() if version > live]
    for version in unfinished:
        sink.drop(version)
    return unfinished


def _reached(seats: list[Seat], targets: Mapping[int, int]) -> bool:
    return all(seat.memory.position.next_offset >= targets.get(seat.partition, 0) for seat in seats)


def _counts_differ(
    left: Mapping[tuple[str, int], Position], right: Mapping[tuple[str, int], Position]
) -> str:
    for at, position in left.items():
        other = right.get(at)
        if other is None or dict(other.counts) != dict(position.counts):
            counts = None if other is None else dict(other.counts)
            return f"Rows by fate on {at[0]}/{at[1]}: {dict(position.counts)}, rebuilt {counts}."
    return ""


def _nobody_else_writes(seat: Seat, fresh: Seat, offset: int) -> None:
    raise RuntimeError(
        f"{seat.name}: somebody else writes the version that is being rebuilt; is another rebuild "
        "running?"
    )
