from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.runtime.position import NO_WATERMARK
from streams.runtime.seen import SeenIds, Verdict
from streams.runtime.watermark import watermarks

HORIZON = 6
ROWS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 25)), max_size=40
)
SLOWLY = ROWS.map(lambda rows: [(i, f, n // 2 + t % 4) for n, (i, f, t) in enumerate(rows)])


def on_time(raw):
    """Rows with their watermark; those beyond the horizon are late and go no further."""
    times = np.array([t for *_, t in raw], dtype=np.int64)
    before, after = watermarks(times, NO_WATERMARK, 1)
    rows = [(*row, int(w)) for row, w in zip(raw, before, strict=True)]
    return [row for row in rows if row[2] + HORIZON > row[3]], after


def naive(rows):
    """Every content of an id is remembered by itself, until its own time + horizon."""
    said, verdicts = {}, []
    for name, content, t, watermark in rows:
        alive = {what for what in said.setdefault(name, set()) if what[1] + HORIZON > watermark}
        if (content, t) in alive:
            verdicts.append(Verdict.DUPLICATE)
        else:
            verdicts.append(Verdict.CONFLICT if alive else Verdict.NEW)
            said[name].add((content, t))
    return verdicts


def check(seen, rows, after):
    schema = {"id": pl.String, "c": pl.Int64, "t": pl.Int64, "_watermark": pl.Int64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return seen.check(frame.with_row_index("_offset").cast({"_offset": pl.Int64}), after)


def empty(horizon_ms=HORIZON):
    return SeenIds("id", "t", ("c",), horizon_ms)


@settings(max_examples=300, deadline=None)
@given(st.one_of(ROWS, SLOWLY), st.lists(st.integers(1, 40), max_size=6))
def test_verdicts_equal_row_by_row_for_every_cut(raw, cuts):
    rows, after = on_time(raw)
    seen, got = empty(), []
    borders = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    for a, b in pairwise(borders):
        until = rows[b][3] if b < len(rows) else after
        seen, verdicts = check(seen, rows[a:b], until)
        got += verdicts.to_list()
    assert got == naive(rows)


def test_the_first_row_in_a_batch_is_new_and_a_reused_id_is_a_conflict_once():
    rows = [("a", 1, 5, 0), ("a", 1, 5, 4), ("a", 2, 5, 4), ("b", 1, 5, 4), ("a", 2, 5, 4)]
    seen, verdicts = check(empty(), rows, 4)
    assert verdicts.to_list() == [
        Verdict.NEW,
        Verdict.DUPLICATE,
        Verdict.CONFLICT,
        Verdict.NEW,
        Verdict.DUPLICATE,
    ]
    assert check(seen, [("a", 2, 5, 4), ("a", 3, 5, 4)], 4)[1].to_list() == [1, 2]


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
def test_a_conflict_is_remembered_when_what_it_conflicted_with_is_forgotten(cut):
    rows = [("a", 1, 0, -1), ("a", 2, 5, -1), ("a", 2, 5, 7), ("a", 3, 6, 8), ("a", 1, 11, 11)]
    seen, first = check(empty(), rows[:cut], rows[cut][3])
    _, second = check(seen, rows[cut:], 11)
    assert [*first, *second] == [
        Verdict.NEW,
        Verdict.CONFLICT,
        Verdict.DUPLICATE,
        Verdict.CONFLICT,
        Verdict.CONFLICT,
    ]


def test_memory_is_bounded_by_the_horizon():
    """Bug 29 for ids: after any time, no more than what is alive, twice."""
    seen = empty(100)
    for n in range(200):
        rows = [(str(n * 50 + i), 1, n * 10, n * 10 - 10) for i in range(50)]
        seen, verdicts = check(seen, rows, n * 10)
        assert set(verdicts) == {Verdict.NEW}
    assert 500 <= seen.ids.height <= 3 * 550


def test_a_row_beyond_the_horizon_is_refused():
    with pytest.raises(ValueError, match="judge them late"):
        check(empty(), [("a", 1, 0, HORIZON)], HORIZON)


def test_ids_that_share_a_code_stay_apart(monkeypatch):
    """A collision of the first 64 bits must not make a new id a repeat, nor forget the old one."""
    real = pl.Series.hash

    def colliding(series, seed=0, **kw):
        hashed = real(series, seed=seed, **kw)
        return hashed % 2 if seed == 1 else hashed

    monkeypatch.setattr(pl.Series, "hash", colliding)
    rows = [(name, 1, 5, 0) for name in "abcdefgh"]
    seen, first = check(empty(), rows[:4], 0)
    seen, second = check(seen, rows[4:], 0)
    _, again = check(seen, rows, 0)
    assert set(first) | set(second) == {Verdict.NEW}
    assert set(again) == {Verdict.DUPLICATE}


def test_the_two_halves_of_the_hash_are_independent():
    ids = pl.Series([f"click-{n:08}" for n in range(100_000)])
    halves = pl.DataFrame({"a": ids.hash(seed=1), "b": ids.hash(seed=2)})
    assert halves.select(pl.all().n_unique()).row(0) == (100_000, 100_000)
    # Ids with equal top bits in one half spread over the other one.
    alike = halves.filter(pl.col("a") < 2**56)
    assert alike.select((pl.col("b") // 2**60).n_unique()).item() == 16
