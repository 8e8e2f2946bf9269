"""The folds: every line once, rollups equal to the raw, late lines never lost."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.telemetry.events import (
    LOGS,
    SAMPLED,
    SERIES_DECLARED,
    AlertChanged,
    Sampled,
    SeriesDeclared,
)
from sinks import telemetry as store
from streams.runtime.testing import assert_replay_deterministic
from tests.telemetry.log import (
    ALERTS,
    COLD,
    DAY,
    HOT,
    HOUR,
    METRICS,
    MINUTE,
    ROLLUPS,
    SAMPLES,
    T,
    an_hour,
    counted,
    line,
    memory,
    recount,
    run,
    sample,
    shuffled,
)

CLOSED = MINUTE + LOGS.allowed_lateness_ms + LOGS.out_of_orderness_ms
"""A line this much later than a minute's start closes it."""


@pytest.mark.parametrize("seed", range(3))
def test_an_hour_shuffled_by_two_hours_rolls_up_as_the_sorted_one(seed: int) -> None:
    lines = an_hour()
    mixed = shuffled(lines, 2 * HOUR, seed)
    assert mixed != lines
    in_order = run(ROLLUPS, *lines)
    shaken = run(ROLLUPS, *mixed, *mixed[:300], cuts=[1, 50, 700])
    for table in ("minutes", "hours"):
        assert shaken.rows(table).equals(in_order.rows(table))
    assert counted(shaken, "minutes", "minute_ms") == recount(lines, MINUTE)
    assert counted(shaken, "hours", "hour_ms") == recount(lines, HOUR)
    assert shaken.counts == {"applied": 2_000, "duplicate": 300}
    assert not shaken.late


def test_a_line_of_last_week_is_kept_marked_and_reported() -> None:
    old, new = line("old", -7 * DAY, body="from the backfill"), line("new")
    kept = run(HOT, new, old)
    assert dict(kept.rows("lines").select("line_id", "late").iter_rows()) == {
        "new": False, "old": True
    }  # fmt: skip
    rolled = run(ROLLUPS, new, old)
    assert rolled.late == [(1, "telemetry.logs")]
    assert rolled.rows("minutes")["lines"].sum() == 1


def test_a_minute_takes_lines_until_it_closes() -> None:
    last = line("last", 59_999)
    for at, fate in ((CLOSED - 1, "applied"), (CLOSED, "late")):
        assert run(ROLLUPS, line("a", at), last).counts.get(fate, 0) == 1 + (fate == "applied")


def test_rollups_and_late_lines_are_the_raw_lines() -> None:
    """However late, whatever order: what readers add up is what was sent."""
    lines = an_hour(600) + [replace(x, line_id=f"d{n}", event_time=x.event_time + DAY)
                            for n, x in enumerate(an_hour(600, seed=3))]  # fmt: skip
    mixed = shuffled(lines, 30 * HOUR)
    rolled, kept = run(ROLLUPS, *mixed), run(HOT, *mixed)
    assert rolled.counts["late"] > 50
    total = Counter({k: n for k, (n, _) in counted(rolled, "minutes", "minute_ms").items()})
    rows = kept.rows("lines")
    timely = set(rows.filter(~pl.col("late"))["line_id"])
    late = rows.filter("late").filter(~pl.col("line_id").is_in(list(timely)))
    minute = pl.col("event_time").dt.epoch("ms").floordiv(MINUTE) * MINUTE
    total += Counter(late.select(minute, "service", "level").iter_rows())
    assert total == {k: n for k, (n, _) in recount(mixed, MINUTE).items()}


def test_a_reused_id_is_another_line() -> None:
    harness = run(HOT, line("a"), line("a", body="other"), line("a"), line("a", body="other"))
    assert sorted(harness.rows("lines")["line_id"]) == ["a", "a~1"]
    assert harness.counts == {"applied": 2, "duplicate": 2}


def test_hot_forgets_by_event_time_and_cold_does_not() -> None:
    old, new = line("old"), line("new", store.HOT_MS + 2 * HOUR)
    hot, cold = run(HOT, old, new), run(COLD, old, new)
    assert hot.rows("lines")["line_id"].to_list() == ["new"]
    assert sorted(cold.rows("lines")["line_id"]) == ["new", "old"]
    expired = hot.memory.position.expired_ms["lines"]
    assert expired == T + HOUR
    assert expired % HOUR == 0


lines_drawn = st.lists(
    st.builds(
        line,
        name=st.sampled_from("abcdef"),
        at=st.integers(-9 * HOUR, 9 * HOUR),
        level=st.sampled_from(("INFO", "ERROR")),
        weight=st.sampled_from((1, 7)),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(lines_drawn, st.integers(0, 2**16))
def test_lines_fold_alike_however_the_log_is_cut(rows: list, seed: int) -> None:  # type: ignore[type-arg]
    for projection in (HOT, ROLLUPS):
        assert_replay_deterministic(projection, rows, seed, memory)


samples_drawn = st.lists(
    st.builds(
        sample,
        series=st.sampled_from("ab"),
        at=st.integers(-3, 3).map(lambda n: n * HOUR // 2) | st.integers(-MINUTE, MINUTE),
        value=st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
    ),
    min_size=1,
    max_size=40,
)


@settings(max_examples=25, deadline=None)
@given(samples_drawn, st.integers(0, 2**16))
def test_samples_fold_alike_however_the_log_is_cut(rows: list, seed: int) -> None:  # type: ignore[type-arg]
    for projection in (SAMPLES, METRICS):
        assert_replay_deterministic(projection, rows, seed, memory)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2 * HOUR), st.floats(-1e15, 1e15)), max_size=60))
def test_measures_are_those_of_the_raw_samples(points: list[tuple[int, float]]) -> None:
    """Exactly: the sum is the sum of the values rounded to 2**-40, whatever the order."""
    rows = [sample("s", at, value) for at, value in points]
    first = {row.event_time: row.value for row in reversed(rows)}
    for table, size in (("minutes", MINUTE), ("hours", HOUR)):
        by_start: dict[int, dict[int, float]] = defaultdict(dict)
        for at, value in first.items():
            assert value is not None
            by_start[at // size * size][at] = value
        harness = run(METRICS, *rows, cuts=[3, 5])
        start = "minute_ms" if table == "minutes" else "hour_ms"
        found = {row[start]: row for row in harness.rows(table).to_dicts()}
        assert set(found) == set(by_start)
        for at, values in by_start.items():
            exact = sum(Fraction(round(v * 2.0**40), 2**40) for v in values.values())
            row = found[at]
            assert row["count"] == len(values)
            assert math.isclose(row["sum"], exact, rel_tol=1e-15, abs_tol=1e-300)
            assert (row["min"], row["max"]) == (min(values.values()), max(values.values()))
            assert row["last"] == values[max(values)] and row["last_ms"] == max(values)


def test_a_series_has_one_sample_at_a_time_and_ends_are_no_values() -> None:
    rows = [sample("s", 0, 1.0), sample("s", 0, 2.0), sample("s", 1, None), sample("t", 0, 3.0)]
    kept, measured = run(SAMPLES, *rows), run(METRICS, *rows)
    assert kept.rows("samples").select("series_id", "value").rows() == [
        ("s", 1.0), ("s", None), ("t", 3.0)
    ]  # fmt: skip
    assert measured.rows("minutes")["count"].to_list() == [1, 1]


def test_a_series_is_listed_by_its_newest_declaration() -> None:
    declared = [
        SeriesDeclared(series_id="s", name="m", labels="{}", kind=kind, unit="", event_time=T + n)
        for n, kind in enumerate(("UNKNOWN", "COUNTER"))
    ]
    harness = run(SAMPLES, declared[0], sample("s"), declared[1])
    (row,) = harness.rows("series").to_dicts()
    assert (row["name"], row["kind"], row["declared_ms"]) == ("m", "COUNTER", T + 1)
    assert harness.counts == {"applied": 3}
    assert SAMPLED.row is Sampled and SERIES_DECLARED.row is SeriesDeclared


def test_an_alert_changes_once_whoever_says_it() -> None:
    def change(state: str, at: int) -> AlertChanged:
        return AlertChanged("f", "R", state, "{}", 1.0, T, T + at)

    rows = [change("PENDING", 0), change("PENDING", 0), change("FIRING", 1), change("PENDING", 0)]
    harness = run(ALERTS, *rows, cuts=[1])
    assert harness.rows("alerts")["state"].to_list() == ["FIRING"]
    assert harness.counts == {"applied": 2, "duplicate": 2}
    assert_replay_deterministic(ALERTS, rows, 5, memory)
