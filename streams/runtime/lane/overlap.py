"""Folds the next span while the write of the one before it is on its way.

    pump's thread     fold 1 │ fold 2        │ fold 3        │
    writer's thread          │ write 1       │ write 2       │

One write is out at a time, and the next one expects the position that it leaves. So the fold runs
ahead of the store by one span, on a memory of its own, which is forgotten when the write fails:
then both spans go through the pump, one after the other, which has an answer to each kind of
failure. So does every span that is not plain (an idle one, a suspected one, one that cannot be
read or folded). What is stored, and in which order, is what the pump alone would store.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import polars as pl

from streams.runtime.lane.pump import Folded, Pump
from streams.runtime.lane.span import Span
from streams.runtime.step import Memory


@dataclass(frozen=True)
class _Flight:
    """A span that is folded, and its write, which ends with the seconds it took."""

    folded: Folded
    written: Future[float]


class Overlap:
    """Takes the place of `Pump.process` for one lane, whose agent calls `take`.

    - `done()` is called once for every span, when it is durable or dropped.
    - `failed(error)` is told what a span failed of that was already taken.
    """

    def __init__(
        self, pump: Pump, done: Callable[[], None], failed: Callable[[BaseException], None]
    ) -> None:
        self._pump = pump
        self._done = done
        self._failed = failed
        self._folder = ThreadPoolExecutor(1, thread_name_prefix=f"pump-{pump.name}")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"writer-{pump.name}")
        self._flight: _Flight | None = None

    def take(self, span: Span) -> Future[None]:
        """Begin with a span. Ends when the next one may come; with the error that ends the lane."""
        taken = self._folder.submit(self._take, span)
        taken.add_done_callback(lambda _: self._done() if taken.cancelled() else None)
        return taken

    def wait(self) -> None:
        """Return when all that was taken is durable or dropped; with the error that ends the
        lane.
        """
        self._folder.submit(self._land).result()

    def close(self) -> None:
        """Return when nothing is in hand any more. The pump has been told to stop."""
        self._folder.shutdown()
        self._writer.shutdown()
        self._landed()

    # -- in the pump's thread -----------------------------------------------------------------

    def _take(self, span: Span) -> None:
        try:
            folded = self._folded(span)
            self._land()
        except BaseException:
            span.seat.revoked = True
            self._done()
            raise
        if folded is None or folded.base is not span.seat.memory or span.seat.revoked:
            self._process(span)
        else:
            self._send(folded)

    def _folded(self, span: Span) -> Folded | None:
        """The span on the memory that the write in flight will leave; None if it is not plain."""
        if span.idle or span.seat.revoked or self._pump.careful:
            return None
        memory = self._ahead(span)
        if span.begins not in (None, memory.now.offset):
            return None
        try:
            self._pump.look(span.seat)
            return self._pump.fold(span, memory)
        except (Exception, pl.exceptions.PanicException):
            return None  # whatever it is, the pump will meet it again

    def _ahead(self, span: Span) -> Memory:
        if self._flight is not None and self._flight.folded.span.seat is span.seat:
            return self._flight.folded.step.memory
        memory: Memory = span.seat.memory
        return memory

    def _send(self, folded: Folded) -> None:
        written = self._writer.submit(self._write, folded)
        self._flight = _Flight(folded, written)
        written.add_done_callback(self._written)

    def _land(self) -> None:
        """Wait for the write in flight."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        if flight.written.exception() is not None:
            self._process(flight.folded.span)
            return
        folded = flight.folded
        with self._pump.traced(folded.span, folded.began_ns):
            self._pump.settle(folded, flight.written.result())
        self._done()

    def _process(self, span: Span) -> None:
        try:
            self._pump.process(span)
        finally:
            self._done()

    def _landed(self) -> None:
        """A write is over. If nothing came after it meanwhile, see to it."""
        if self._flight is None or not self._flight.written.done():
            return
        try:
            self._land()
        except BaseException as error:
            self._failed(error)

    # -- in the writer's thread ---------------------------------------------------------------

    def _write(self, folded: Folded) -> float:
        began = time.perf_counter()
        self._pump.store(folded)
        return time.perf_counter() - began

    def _written(self, _: Future[float]) -> None:
        with suppress(RuntimeError):  # closed: `close` sees to it
            self._folder.submit(self._landed)
