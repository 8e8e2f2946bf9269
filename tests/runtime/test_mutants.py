"""Each rule of event time, broken on purpose, must be noticed by the test every projection has.

A mutant is a counterexample of the protocol's section 3 (14, 15, 16) put back into the real code.
"""

from __future__ import annotations

from dataclasses import replace

import polars as pl
import pytest

from streams.runtime import step as step_module
from streams.runtime import testing
from streams.runtime.marks import Marks
from streams.runtime.outcome import Outcome
from streams.runtime.position import NO_WATERMARK
from streams.runtime.sink import FenceRefused
from streams.runtime.testing import assert_replay_deterministic
from streams.runtime.window import Emit, Windows, session, tumbling
from streams.runtime.window.session import SessionWindows
from tests.runtime.clicks import Clicked, clicks, projection, spec
from tests.runtime.recorder import Recorder

JITTER = (0, -3, 1, -6, 0, -1, 2, -5, -2, 0, -4)
ROWS = [Clicked(f"id{n - n % 2}", "ab"[n % 2], 2 * (n // 3) + JITTER[n % 11], 1) for n in range(45)]
WINDOWS = {
    "tumbling": tumbling(spec(emit=Emit.FINAL, allowed_lateness_ms=4), 4),
    "session": session(spec(emit=Emit.FINAL, allowed_lateness_ms=1), 3),
    "update": session(spec(allowed_lateness_ms=1), 3),
}


def caught(bounds=(1, 4), seeds=3, horizon_ms=None) -> bool:
    """Whether any of a few disturbed runs differs from the clean one."""
    for seed in range(seeds):
        for windows in WINDOWS.values():
            for bound in bounds:
                built = projection(windows, bound=bound, horizon_ms=horizon_ms)
                try:
                    assert_replay_deterministic(built, ROWS, seed, Recorder, batch_max=4)
                except AssertionError:
                    return True
    return False


def test_the_code_as_it_is_passes():
    assert not caught()
    assert not caught(horizon_ms=9, seeds=1)


def start_replays_at(monkeypatch, watermark):
    real = step_module.restore

    def restore(*args, **more):
        memory = real(*args, **more)
        now = replace(memory.now, watermark_ms=watermark(memory.position))
        return replace(memory, now=now)

    monkeypatch.setattr(testing, "restore", restore)


def test_14_replay_with_the_watermark_at_next(monkeypatch):
    start_replays_at(monkeypatch, lambda position: position.watermark_ms)
    assert caught()


@pytest.mark.parametrize("mutant", [False, True])
def test_14_replay_without_a_watermark(monkeypatch, mutant):
    """What moved event time lies before low: a late row is counted once that is forgotten."""
    if mutant:
        start_replays_at(monkeypatch, lambda _: NO_WATERMARK)
    built = projection(session(spec(), 4))
    harness = testing.Harness(built, Recorder(built.model))
    harness.tick(52)
    harness.send(*clicks(49))
    harness.run(cuts=[1])
    harness.crash()
    harness.step(1)
    harness.send(*clicks(46, first=1))
    harness.run()
    assert [offset for offset, _ in harness.late] == ([] if mutant else [2])


def test_15_low_is_next(monkeypatch):
    monkeypatch.setattr(Marks, "low", lambda self, now: now)
    assert caught()


def test_15_low_ignores_the_allowed_lateness(monkeypatch):
    real = Marks.add

    def add(self, start, outcome: Outcome):
        until = outcome.open_until_ms
        return real(self, start, replace(outcome, open_until_ms=until and until - 4))

    monkeypatch.setattr(Marks, "add", add)
    assert caught()


def test_15_low_forgets_that_sessions_grow(monkeypatch):
    real = Marks.add

    def add(self, start, outcome: Outcome):
        return real(self, start, replace(outcome, open_from_offset=None))

    monkeypatch.setattr(Marks, "add", add)
    assert caught()


def test_15_late_by_batch(monkeypatch):
    real = testing.stamp

    def stamp(frames, event_time, before_ms, bound_ms):
        stamped, after = real(frames, event_time, before_ms, bound_ms)
        whole = pl.lit(before_ms, pl.Int64).alias("_watermark")
        return {name: frame.with_columns(whole) for name, frame in stamped.items()}, after

    monkeypatch.setattr(testing, "stamp", stamp)
    assert caught()


def test_15_a_replay_writes_and_counts(monkeypatch):
    """The fence is the last line of defence: it expects another position."""
    real = step_module.advance

    def advance(projection, memory, batch, refused=None):
        if memory.replaying:
            position = replace(memory.position, next_offset=memory.now.offset)
            memory = replace(memory, position=position)
        return real(projection, memory, batch, refused)

    monkeypatch.setattr(testing, "advance", advance)
    with pytest.raises(FenceRefused):
        caught()


def test_16_a_merge_deletes_only_final_rows(monkeypatch):
    real = SessionWindows._deleted

    def deleted(self, before_ms, absorbed, rows):
        final = None if absorbed is None else absorbed.filter(pl.col("end_ms") <= before_ms)
        return real(self, before_ms, final, rows)

    monkeypatch.setattr(SessionWindows, "_deleted", deleted)
    assert caught()


def test_16_a_session_joins_what_was_purged_between(monkeypatch):
    """The mutant sorts by time and cuts at gaps alone, as batch systems do."""
    real = SessionWindows._number

    def number(self: Windows, live, known):
        return real(self, live.with_columns(pl.lit(NO_WATERMARK).alias("_watermark")), known)

    monkeypatch.setattr(SessionWindows, "_number", number)
    assert caught()
