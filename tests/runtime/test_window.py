"""What holds for all kinds of windows."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.runs import CODE, FAN, UNTIL, Runs
from streams.runtime.window import (
    Aggregate,
    Count,
    Emit,
    Max,
    Min,
    Spec,
    Sum,
    hopping,
    session,
    tumbling,
)  # fmt: skip
from tests.runtime.window_model import LOGS, frame, log, play, spec

KINDS = {
    "tumbling": lambda s: tumbling(s, 4),
    "hopping": lambda s: hopping(s, 6, 4),
    "session": lambda s: session(s, 4),
}
kinds = pytest.mark.parametrize("kind", KINDS)


def rows_of(*rows, bound=0):
    return frame(log([("a", t, 1) for t in rows], bound)[0])


@kinds
def test_state_is_immutable_so_a_batch_can_be_tried_again(kind):
    windows, _ = KINDS[kind](spec(Emit.UPDATE, 0)).add(rows_of(1, 2), 2)
    again = [windows.add(rows_of(3), 3)[1].changed.sort("start_ms") for _ in range(2)]
    assert again[0].equals(again[1])


@kinds
@settings(deadline=None)
@given(log_=LOGS)
def test_final_and_provisional_together_are_what_update_shows(kind, log_):
    """An idle flush shows exactly the windows that are still open, as they stand."""
    rows, after = log(log_, 2)
    _, table, late = play(KINDS[kind](spec(Emit.UPDATE, 0)), rows, after, [5])
    windows, final, late_too = play(KINDS[kind](spec(Emit.FINAL, 0)), rows, after, [3, 9])
    early = windows.provisional()
    for key, start, *values in early.iter_rows() if early is not None else ():
        assert (key, start) not in final
        final[key, start] = tuple(values)
    assert (final, late_too) == (table, late)


@kinds
def test_a_batch_without_rows_closes_what_time_has_passed(kind):
    windows, first = KINDS[kind](spec(Emit.FINAL, 0)).add(rows_of(1), 1)
    _, second = windows.add(rows_of(), 100)
    assert not first.changed.height
    assert set(second.changed["n"]) == {1}
    assert first.changed.schema == second.changed.schema


@kinds
def test_late_rows_come_back_in_full(kind):
    rows = rows_of(0, 50, 1, 49).with_columns(extra=pl.lit("x"))
    _, update = KINDS[kind](spec(Emit.UPDATE, 0)).add(rows, 50)
    assert update.late.equals(rows[2:3])
    assert update.late.columns == rows.columns


@kinds
def test_rows_without_event_time_and_sums_of_floats_are_refused(kind):
    windows = KINDS[kind](spec(Emit.UPDATE, 0))
    with pytest.raises(ValueError, match="1 rows without t"):
        windows.add(rows_of(1).with_columns(t=pl.lit(None, pl.Int64)), 1)
    with pytest.raises(TypeError, match="not an integer"):
        windows.add(rows_of(1).with_columns(v=pl.lit(0.5)), 1)


@kinds
def test_keys_may_be_null_or_several_and_time_a_datetime(kind):
    rows = rows_of(1, 2, 3, 2).with_columns(
        key=pl.Series(["a", None, None, "a"]), day=pl.Series([1, 1, 2, 1]),
        t=pl.col("t").cast(pl.Datetime("ms", "UTC")),
    )  # fmt: skip
    windows = KINDS[kind](Spec(("key", "day"), "t", {"n": Count()}))
    for _ in range(2):
        windows, update = windows.add(rows, 0)
    last = update.changed.filter(pl.col("start_ms") == pl.col("start_ms").max().over("key", "day"))
    assert sorted(last.select("day", "n").rows()) == [(1, 2), (1, 4), (2, 2)]


@kinds
def test_keys_that_share_a_code_stay_apart(kind, monkeypatch):
    real = pl.DataFrame.hash_rows
    monkeypatch.setattr(pl.DataFrame, "hash_rows", lambda self, **kw: real(self, **kw) % 2)
    windows, seen = KINDS[kind](spec(Emit.FINAL, 0)), {}
    for n in range(4):
        rows = rows_of(*range(8)).with_columns(key=pl.Series(list("abcdefgh")[n:] + ["z"] * n))
        windows, update = windows.add(rows, 0)
    _, update = windows.add(rows_of(), 10**6)
    per_key = update.changed.group_by("key").agg(pl.col("n").sum()).rows()
    seen |= dict(per_key)
    times = 2 if kind == "hopping" else 1
    assert set(seen) == set("abcdefghz")
    assert 32 <= sum(seen.values()) <= 32 * times


def test_an_aggregate_of_ones_own():
    ored = Aggregate(pl.col("v").bitwise_or(), lambda name: pl.col(name).bitwise_or())
    windows = tumbling(Spec(("key",), "t", {"flags": ored}), 10)
    for v in (1, 4):
        windows, update = windows.add(rows_of(1).with_columns(v=pl.lit(v, pl.Int64)), 0)
    assert update.changed["flags"].to_list() == [5]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tumbling(spec(Emit.UPDATE, 0), 0),
        lambda: hopping(spec(Emit.UPDATE, 0), 4, 5),
        lambda: session(spec(Emit.UPDATE, 0), 0),
        lambda: spec(Emit.UPDATE, -1),
        lambda: Spec(("n",), "t", {"n": Count()}),
        lambda: Spec(("start_ms",), "t", {"n": Sum("v"), "a": Min("v"), "b": Max("v")}),
    ],
)
def test_windows_that_make_no_sense_are_refused(make):
    with pytest.raises(ValueError):
        make()


RUNS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 30), min_size=1, unique=True)), max_size=25
)


@pytest.mark.parametrize("small_rows", [1, 4_096])
@settings(deadline=None)
@given(batches=RUNS, spread=st.sampled_from([1, 2**64 // 31]))
def test_runs_equal_a_dict_that_forgets(small_rows, batches, spread):
    """Newest wins, dead rows never show, whatever was merged when and however runs are asked."""
    with patch("streams.runtime.runs.SMALL_ROWS", small_rows):
        _compare(batches, spread)


def _compare(batches, spread):
    runs, plain, watermark = Runs(), {}, 0
    asked = pl.Series([n * spread for n in range(31)], dtype=pl.UInt64).to_numpy()
    for n, (moves, numbers) in enumerate(batches):
        watermark += moves
        until = n + 4
        codes = [number * spread for number in numbers]
        rows = pl.DataFrame(
            {CODE: codes, UNTIL: [until] * len(codes), "value": [n] * len(codes)},
            schema={CODE: pl.UInt64, UNTIL: pl.Int64, "value": pl.Int64},
        )
        runs = runs.put(rows, watermark)
        plain |= dict.fromkeys(codes, (until, n))
        alive = {c: v for c, v in plain.items() if v[0] > watermark}
        for found in (runs.take(asked), runs.scan(pl.lit(value=True))):
            kept = found.filter(pl.col(UNTIL) > watermark)
            assert {c: (u, v) for c, u, v in kept.iter_rows()} == alive


def test_runs_stay_few_and_within_twice_their_rows():
    """Keys drawn at random from a fixed set: every batch is a newer version of some of them."""
    keys, batch = 20_000, 500
    draw, runs, written = np.random.default_rng(3), Runs(), 0
    with patch("streams.runtime.runs.SMALL_ROWS", 64):
        for _ in range(200):
            codes = np.sort(draw.choice(keys, batch, replace=False)).astype(np.uint64) << 49
            rows = pl.DataFrame({CODE: codes, UNTIL: np.full(batch, 1_000), "value": codes})
            before, runs = runs, runs.put(rows, 0)
            written += sum(
                run.rows.height for run in runs.runs if all(run is not old for old in before.runs)
            )
            assert runs.height <= 2 * keys + batch
            assert len(runs.runs) <= 1 + 3 * FAN
    assert written < 200 * batch * 6
