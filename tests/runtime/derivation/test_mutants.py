"""Each rule of derived topics, broken on purpose, must be noticed by the test of runs.

The mutants are the counterexamples 8, 9 and 17 of the protocol's section 3, and the planted bugs of
its model, put back into the real code.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from confluent_kafka import Producer

from streams.runtime.derivation import filter as rule
from streams.runtime.derivation import target
from streams.runtime.derivation.wire import NONE, Source, columns
from streams.runtime.position import NO_WATERMARK, FilterState
from streams.runtime.sink import SinkUnavailable, Write
from tests.runtime.derivation import scene
from tests.runtime.derivation.scene import Sent, Task, disturb

ROWS = [Sent("s", n * 3 % 5, 100 * n) for n in range(10)]
SEEDS = 400


def caught(seeds: int = SEEDS) -> bool:
    """Whether any of a few disturbed runs shows readers something else than the source."""
    for seed in range(seeds):
        try:
            disturb(ROWS, random.Random(seed), 16)
        except AssertionError:
            return True
    return False


def test_the_code_as_it_is_passes_and_is_disturbed() -> None:
    logs = [disturb(ROWS, random.Random(seed), 16) for seed in range(60)]
    assert sum(log.failures for log in logs) > 60
    assert sum(log.refused() for log in logs) > 600


def test_a_reader_that_passes_over_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counterexample 8: r0 lost, r1 lands, r0 sent again is not newer."""
    real = rule._verdicts

    def verdicts(mine: dict[str, Any], last: tuple[int, int]) -> Any:
        nothing = np.full_like(mine["offset"], -1)
        return real({**mine, "prev_offset": nothing, "prev_index": nothing}, last)

    monkeypatch.setattr(rule, "_verdicts", verdicts)
    assert caught()


def test_a_reader_that_forgets_the_place_among_a_rows_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counterexample 9: (5, 1) is dropped after (5, 0)."""
    real = rule._verdicts

    def verdicts(mine: dict[str, Any], last: tuple[int, int]) -> Any:
        zeros = np.zeros_like(mine["index"])
        return real({**mine, "index": zeros, "prev_index": zeros}, (last[0], 0))

    monkeypatch.setattr(rule, "_verdicts", verdicts)
    assert caught()


def test_a_reader_that_takes_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rule._verdicts

    def verdicts(mine: Any, last: Any) -> Any:
        codes = real(mine, last)
        return np.where(codes == rule.Verdict.REPEAT, rule.Verdict.ACCEPTED, codes)

    monkeypatch.setattr(rule, "_verdicts", verdicts)
    assert caught()


def test_a_run_that_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again names a record that was lost, so readers wait for it for ever."""
    real = target.TargetLog.write

    def write(self: target.TargetLog, version: int, one: Write) -> None:
        run = self._runs.setdefault(one.partition, target._Run(one.position.topic_id))
        try:
            real(self, version, one)
        except SinkUnavailable:
            self._runs[one.partition] = run
            raise

    monkeypatch.setattr(target.TargetLog, "write", write)
    task_failing_once = iter(["sent", "lost"])
    log = scene.Log()
    task = Task(log, scene.Committed(), 0, ROWS, lambda: next(task_failing_once, "sent"))
    with pytest.raises(SinkUnavailable):
        task.step(10)
    task.step(10)
    assert [log.accepted(n) for n in range(3)] != scene.expected(0, ROWS)


def test_a_write_that_does_not_look_whether_all_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(self: target.TargetLog, producer: Producer, parcels: Iterator[Any]) -> None:
        for partition, header, key, value in parcels:
            producer.produce(
                "test.got", value, key, partition, lambda *_: None,
                headers=[("headrace-source", header)],
            )  # fmt: skip
        producer.flush(1)

    monkeypatch.setattr(target.TargetLog, "_send", send)
    assert caught()


def test_a_commit_ahead_of_the_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Task.step

    def step(self: Task, most: int) -> bool:
        real_write = self.target.write

        def write(version: int, one: Write) -> None:
            self.committed.stored[self.partition] = one.position
            real_write(version, one)

        with monkeypatch.context() as patch:
            patch.setattr(self.target, "write", write)
            return real(self, most)

    monkeypatch.setattr(Task, "step", step)
    assert caught()


def late_rows(watermark: Any) -> int:
    """Rows that are late by lag alone, of two sources in order, one of them behind (17)."""
    ahead = [(0, n, 10 * n) for n in range(8)]
    behind = [(1, n, 10 * n) for n in range(8)]
    order = [*ahead[:5], *behind[:2], *ahead[5:], *behind[2:]]
    last: dict[int, tuple[int, int]] = {}
    headers = []
    for partition, offset, time_ms in order:
        prev = last.get(partition, NONE)
        headers.append(Source("0" * 16, partition, 2, offset, 0, *prev, time_ms).pack())
        last[partition] = (offset, 0)
    found = rule.accept(
        FilterState(), columns(headers), topics=1, before_ms=NO_WATERMARK, bound_ms=0
    )
    assert found.mask.all()
    times = np.array([time_ms for _, _, time_ms in order])
    before = watermark(times) if watermark else found.watermarks
    return int((times < before).sum())


def test_the_least_watermark_makes_no_row_late_by_lag_and_the_greatest_does() -> None:
    def greatest(times: Any) -> Any:
        return np.maximum.accumulate(np.concatenate([[NO_WATERMARK], times[:-1]]))

    assert late_rows(None) == 0
    assert late_rows(greatest) > 0
