"""Ids of one lease, and of many: unique and rising, whatever the clock does."""

from __future__ import annotations

import random
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.ids.generator import Behind, Generator, Lapsed, LogClock
from schemas.ids.snowflake import (
    EPOCH_MS,
    ID_MAX,
    PER_MS,
    TIME_BITS,
    TWITTER_EPOCH_MS,
    WORKERS,
    Parts,
    first_id,
    parts,
)

T = 1_700_000_000_000
TTL = 60_000


@given(st.integers(0, 2**41 - 1), st.integers(0, WORKERS - 1), st.integers(0, PER_MS - 1))
def test_an_id_is_positive_and_says_what_it_is_made_of(since: int, worker: int, n: int) -> None:
    made = first_id(EPOCH_MS + since, worker) + n
    assert 0 <= made <= ID_MAX
    assert parts(made) == Parts(EPOCH_MS + since, worker, n)


@pytest.mark.parametrize(
    ("time_ms", "worker"),
    [(EPOCH_MS - 1, 0), (EPOCH_MS + (1 << TIME_BITS), 0), (T, -1), (T, WORKERS)],
)
def test_what_the_bits_do_not_hold_is_refused(time_ms: int, worker: int) -> None:
    with pytest.raises(ValueError, match=r"not in|outside"):
        first_id(time_ms, worker)


TWEETS = [
    (2_742_379_589_144_576, "2010-11-11T15:20:08"),
    (302_549_902_255_325_184, "2013-02-15T22:48:12"),
    (467_821_512_981_233_666, "2014-05-18T00:18:35"),
    (699_966_633_918_525_441, "2016-02-17T14:40:24"),
    (947_824_196_909_961_216, "2018-01-01T13:37:52"),
]
"""Quartiles of the 20,597 Snowflakes in `dslabs/trump_tweets`, with their `created_at`."""


@pytest.mark.parametrize(("tweet", "created"), TWEETS)
def test_a_real_snowflake_says_when_it_was_made(tweet: int, created: str) -> None:
    created_ms = datetime.fromisoformat(f"{created}+00:00").timestamp() * 1_000
    assert -1_000 < parts(tweet, TWITTER_EPOCH_MS).time_ms - created_ms < 3_000


def test_a_millisecond_has_4096_ids_and_then_it_waits_for_the_next() -> None:
    generator = Generator(3, T, T + TTL)
    first = generator.issue(5_000, T)
    assert first.size == PER_MS
    assert not generator.issue(1, T).size
    more = generator.issue(10, T + 1)
    assert more.size == 10
    made = np.concatenate([first, more])
    assert (np.diff(made) > 0).all()
    assert {parts(int(one)).worker for one in made} == {3}


def test_a_clock_that_goes_back_is_refused_with_how_far() -> None:
    generator = Generator(0, T, T + TTL)
    generator.issue(1, T + 500)
    with pytest.raises(Behind) as told:
        generator.issue(1, T + 499)
    assert told.value.by_ms == 1
    assert generator.issue(1, T + 500).size == 1


def test_no_id_is_outside_of_the_lease() -> None:
    generator = Generator(0, T, T + TTL)
    with pytest.raises(Behind) as told:
        generator.issue(1, T - 3_600_000)
    assert told.value.by_ms == 3_600_000
    with pytest.raises(Lapsed):
        generator.issue(1, T + TTL)
    generator.extend(T + TTL + 1)
    assert generator.issue(1, T + TTL).size == 1


@given(st.lists(st.tuples(st.integers(-2_000, 2_000), st.integers(1, 9_000)), max_size=40))
def test_any_walk_of_the_clock_makes_rising_ids(walk: list[tuple[int, int]]) -> None:
    generator, now, made = Generator(1, T, T + TTL), T, []
    for step, count in walk:
        now += step
        try:
            made.append(generator.issue(count, now))
        except (Behind, Lapsed):
            continue
    together = np.concatenate([np.zeros(1, np.int64), *made])
    assert (np.diff(together) > 0).all()


def test_leases_with_disjoint_spans_make_disjoint_ids_though_all_live_at_once() -> None:
    """A zombie that wakes up with the number of its successor, and a clock of its own."""
    chance = random.Random(1)
    makers = [Generator(7, T + n * TTL, T + (n + 1) * TTL) for n in range(4)]
    seen: set[int] = set()
    count = 0
    for n in range(2_000):
        now = T + n * 120 + chance.randrange(-500, 500)
        try:
            made = chance.choice(makers).issue(50, now)
        except (Behind, Lapsed):
            continue
        count += made.size
        seen.update(made.tolist())
    assert count > 5_000
    assert len(seen) == count


def test_the_clock_of_the_log_does_not_look_at_the_wall() -> None:
    steady = 5_000_000_000
    clock = LogClock(T, lambda: steady)
    steady += 1_500_000
    assert clock() == T + 1
    clock.set(T + 10)
    steady += 2_000_000
    assert clock() == T + 12


def test_bulk_stops_where_it_would_have_to_wait() -> None:
    ticks = iter([T, T, T + 1, T + 1])
    generator = Generator(0, T, T + TTL)
    out = np.empty(10_000, np.int64)
    assert generator.issue_into(out, lambda: next(ticks)) == PER_MS
    done = generator.issue_into(out[PER_MS:], lambda: next(ticks))
    assert done == PER_MS
    assert (np.diff(out[: 2 * PER_MS]) > 0).all()
