"""Faults planted into the product, each of which the simulation must find.

They are put in from outside while a test runs; the product has no switch for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import polars as pl

from sinks.drivers import memory
from streams.runtime import step
from streams.runtime.decider import filter as rule
from streams.runtime.decider import owner
from streams.runtime.decider.owner import Owner
from streams.runtime.derivation import target
from streams.runtime.lane import pump, store
from streams.runtime.lane.span import Span
from streams.runtime.position import Position
from streams.runtime.sink import SinkUnavailable, Write


@contextmanager
def no_epoch_check() -> Iterator[None]:
    """Readers take events of any claim (A2)."""

    def lenient(halves: Any) -> Callable[..., Any]:
        def run(state: Any, decisions: Any, codes: Any, between: slice, timer: Any) -> Any:
            part = decisions[between]
            if part.size:
                part[:, rule._CLAIM] = state.claim_offset
                part[:, rule._NONCE] = halves(state.nonce or "00" * 16)
            return original(state, decisions, codes, between, timer)

        return run

    original = rule._run
    with patch.object(rule, "_run", lenient(rule._halves)):
        yield


@contextmanager
def holes_pass() -> Iterator[None]:
    """Readers take any later number of the epoch: `>` for `==` (A2)."""

    def chained(seq: Any, before: int) -> Any:
        running = rule.np.maximum.accumulate(rule.np.concatenate([[before], seq[:-1]]))
        return seq > running

    with patch.object(rule, "_chained", chained):
        yield


@contextmanager
def failed_sends_are_ignored() -> Iterator[None]:
    """A writer goes on under its epoch after a failed send (A7)."""
    with patch.object(Owner, "failed", lambda *_: None), patch.object(rule, "_chained", _all):
        yield


def _all(seq: Any, before: int) -> Any:
    return rule.np.ones(seq.size, rule.np.bool_)


@contextmanager
def answers_before_the_log() -> Iterator[None]:
    """Senders are told a decision when it is sent and not when it is read back (A5)."""
    original = Owner._send

    def send(self: Owner, judged: Any, cause: Any, key: str, envelope: Any, headers: Any) -> None:
        original(self, judged, cause, key, envelope, headers)
        if envelope is not None and envelope.reply_to:
            told = owner.Answer(
                envelope.correlation_id, 200, b"{}", *self._place,
                self.folded.next_offset + len(self._flying) - 1, self._source,
            )  # fmt: skip
            self._ports.answer(envelope.reply_to, told)

    with patch.object(Owner, "_send", send):
        yield


@contextmanager
def snapshots_of_the_future() -> Iterator[None]:
    """Snapshots hold decisions that are still in flight (A5)."""

    def save(self: Owner) -> None:
        if self._last is None or not self._unsaved:
            return
        self._unsaved = 0
        self._ports.snapshot(self.folded.image(), self.folded.filter, self._last)

    with patch.object(Owner, "save", save):
        yield


@contextmanager
def fence_off() -> Iterator[None]:
    """The store takes any write (C1)."""
    original = memory.MemorySink.write

    def write(self: Any, version: int, write: Write) -> None:
        stored = self.load(version, write.topic, write.partition)
        original(self, version, replace(write, expected=stored))

    with patch.object(memory.MemorySink, "write", write):
        yield


@contextmanager
def fence_of_greater() -> Iterator[None]:
    """The store takes a write that ends further than what it has: `>` for "is the same" (C1)."""
    original = memory.MemorySink.write

    def write(self: Any, version: int, write: Write) -> None:
        stored: Position | None = self.load(version, write.topic, write.partition)
        if stored is not None and write.position.next_offset > stored.next_offset:
            write = replace(write, expected=stored)
        original(self, version, write)

    with patch.object(memory.MemorySink, "write", write):
        yield


@contextmanager
def unknown_is_taken_for_done() -> Iterator[None]:
    """A write without an answer is believed (position before data)."""

    def until_durable(self: Any, seat: Any, write: Write, act: Callable[[], None]) -> None:
        def once() -> None:
            try:
                act()
            except SinkUnavailable:
                return

        self._patience(seat, once)

    with patch.object(store.Store, "_until_durable", until_durable):
        yield


@contextmanager
def one_record_in_a_hundred_is_dropped() -> Iterator[None]:
    """The lane skips records."""
    original = pump.read

    def read(topic: Any, span: Span, decode: Any, now: Any) -> Any:
        reading = original(topic, span, decode, now)
        frames = {
            name: frame.filter(frame["_offset"] % 100 != 50)
            for name, frame in reading.batch.frames.items()
        }
        return replace(reading, batch=replace(reading.batch, frames=frames))

    with patch.object(pump, "read", read):
        yield


@contextmanager
def replays_are_counted() -> Iterator[None]:
    """What is read again after a restart is folded as new (C7)."""
    original = step.restore

    def restore(
        projection: Any, topic_id: str, stored: Any, rows: Any = None, *, begin: int = 0
    ) -> Any:
        found = original(projection, topic_id, stored, rows, begin=begin)
        low = found.position.low_offset
        return replace(found, position=replace(found.position, next_offset=low))

    with patch.object(store, "restore", restore):
        yield


@contextmanager
def lateness_of_the_batch() -> Iterator[None]:
    """Rows are late by the watermark after their batch, not before themselves (C6)."""
    original = pump.read

    def read(topic: Any, span: Span, decode: Any, now: Any) -> Any:
        reading = original(topic, span, decode, now)
        after = pl.lit(reading.batch.watermark_ms, pl.Int64)
        frames = {n: f.with_columns(_watermark=after) for n, f in reading.batch.frames.items()}
        return replace(reading, batch=replace(reading.batch, frames=frames))

    with patch.object(pump, "read", read):
        yield


@contextmanager
def runs_go_on_after_a_failure() -> Iterator[None]:
    """A derivation names what it sent before a lost record as if it had arrived (B3)."""
    original = target.TargetLog._send

    def send(self: Any, producer: Any, parcels: Any) -> None:
        try:
            original(self, producer, parcels)
        except SinkUnavailable:
            return

    with patch.object(target.TargetLog, "_send", send):
        yield


PLANTS: dict[str, Callable[[], Any]] = {
    plant.__name__: plant
    for plant in (
        no_epoch_check,
        holes_pass,
        failed_sends_are_ignored,
        answers_before_the_log,
        snapshots_of_the_future,
        fence_off,
        fence_of_greater,
        unknown_is_taken_for_done,
        one_record_in_a_hundred_is_dropped,
        replays_are_counted,
        lateness_of_the_batch,
        runs_go_on_after_a_failure,
    )
}
