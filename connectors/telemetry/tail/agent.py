"""The agent: reads files into the spool, and sends the spool's lines.

`Reader` and `Shipper` share nothing but the spool. Both are plain steps, so that a test can stop
between any two; `run` makes them a program.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import structlog

from connectors.producer import ProducerError
from connectors.telemetry.line import Line
from connectors.telemetry.parse import Format, Origin
from connectors.telemetry.parse import line as parsed
from connectors.telemetry.tail import follow, records
from connectors.telemetry.tail.follow import Chunk, Cursor
from connectors.telemetry.tail.spool import Place, Spool, SpoolFull

CURSORS_MAX = 10_000
FRAMES_MAX = 16
RETRY_S, RETRY_S_MAX = 0.5, 30.0
IDLE_S = 0.2

log = structlog.get_logger("tail")


@dataclass(frozen=True)
class Source:
    """Files that one service writes, as shell patterns."""

    service: str
    paths: tuple[str, ...]
    format: Format = "auto"
    labels: Mapping[str, str] = field(default_factory=dict)


class Deliver(Protocol):
    """Sends lines; returns when they are durable. Raises `ProducerError` to be asked again."""

    async def __call__(self, lines: Sequence[Line]) -> None: ...


class Reader:
    """New lines of all sources into the spool."""

    def __init__(self, sources: Sequence[Source], spool: Spool) -> None:
        self._sources = sources
        self._spool = spool
        self._cursors = recovered(spool)

    def step(self, now_ns: int) -> int:
        """Read a chunk of every file that has one; returns how many lines. Reads nothing while
        the spool is full: the lines wait where they were written.
        """
        count = 0
        with suppress(SpoolFull):
            for source in self._sources:
                for one in follow.candidates(source.paths, self._cursors):
                    if self._spool.full:
                        return count
                    chunk = follow.read(one)
                    if chunk is not None:
                        self._keep(source, chunk, now_ns)
                        count += len(chunk.lines)
        return count

    def _keep(self, source: Source, chunk: Chunk, now_ns: int) -> None:
        if self._spool.begins_segment:
            every = tuple(self._cursors.values())[-CURSORS_MAX:]
            self._spool.append(records.encode(records.Held("", "", now_ns, (), every)))
        held = records.Held(source.service, chunk.path, now_ns, chunk.lines, (chunk.cursor,))
        self._spool.append(records.encode(held))
        self._cursors.pop(chunk.cursor.key, None)  # the newest stand last
        self._cursors[chunk.cursor.key] = chunk.cursor


def recovered(spool: Spool) -> dict[str, Cursor]:
    """How far each file is read, by all that the spool still has."""
    cursors: dict[str, Cursor] = {}
    for frame in spool.frames(Place(0, 0)):
        for cursor in records.decode(frame.payload).cursors:
            cursors.pop(cursor.key, None)
            cursors[cursor.key] = cursor
    return cursors


class Shipper:
    """Lines of the spool to where they go."""

    def __init__(
        self, host: str, sources: Sequence[Source], spool: Spool, deliver: Deliver
    ) -> None:
        self._host = host
        self._sources = {source.service: source for source in sources}
        self._spool = spool
        self._deliver = deliver

    async def step(self) -> int:
        """Send the next frames and commit them; returns how many lines. Raises `ProducerError`:
        nothing is committed, and the next step sends the same.
        """
        frames = list(islice(self._spool.frames(), FRAMES_MAX))
        if not frames:
            return 0
        lines = [line for frame in frames for line in self._lines(records.decode(frame.payload))]
        if lines:
            await self._deliver(lines)
        self._spool.commit(frames[-1].behind)
        return len(lines)

    def _lines(self, held: records.Held) -> list[Line]:
        source = self._sources.get(held.service, Source(held.service, ()))
        labels = {"file": held.path, **source.labels}
        origin = Origin(held.service, self._host, source.format, labels)
        ids = records.line_ids(self._host, held)
        return [
            parsed(text.decode(errors="replace"), origin, held.read_ns, line_id)
            for line_id, (_, text) in zip(ids, held.lines, strict=True)
            if text.strip()
        ]


async def run(
    reader: Reader,
    shipper: Shipper,
    stop: asyncio.Event,
    clock_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Read and send until `stop` is set. What cannot be sent is tried again, ever more slowly."""
    await asyncio.gather(_reading(reader, stop, clock_ns), _shipping(shipper, stop))


async def _reading(reader: Reader, stop: asyncio.Event, clock_ns: Callable[[], int]) -> None:
    while not stop.is_set():
        if not await asyncio.to_thread(reader.step, clock_ns()):
            await _pause(stop, IDLE_S)


async def _shipping(shipper: Shipper, stop: asyncio.Event) -> None:
    retry_s = RETRY_S
    while not stop.is_set():
        try:
            sent = await shipper.step()
        except ProducerError as error:
            log.warning("not sent", error=str(error), retry_s=retry_s)
            await _pause(stop, retry_s)
            retry_s = min(2 * retry_s, RETRY_S_MAX)
            continue
        retry_s = RETRY_S
        if not sent:
            await _pause(stop, IDLE_S)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)
