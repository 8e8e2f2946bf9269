"""The fold of feeds against plain Python, in whatever batches; and each rule by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sinks import feed as store
from streams.runtime.settings import Feed
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.feed.few import BODIES, FEEDS, FEW, memory, oracle
from tests.feed.people import HOUR_MS, NOON_MS, follow, life, opened, post, relate, remove

pytestmark = pytest.mark.usefixtures("few")

TABLES = [table.name for table in store.HOME.tables]


def folded(*rows: Any, projection: Any = FEW, cuts: tuple[int, ...] = ()) -> Harness:
    harness = Harness(projection, memory(projection.model))
    harness.send(*rows)
    harness.run(cuts)
    return harness


def feed(harness: Harness, user: str) -> list[str]:
    rows = harness.rows("feeds").sort("time_ms", "author", "post_id", descending=True)
    return [row["post_id"] for row in rows.iter_rows(named=True) if row["user"] == user]


def stored(harness: Harness, table: str) -> set[tuple[Any, ...]]:
    return set(harness.rows(table).iter_rows())


@pytest.mark.parametrize("seed", range(12))
def test_feeds_are_those_of_the_oracle(seed: int) -> None:
    rows = life(seed, 400)
    expected = oracle().fold(rows)
    assert expected.wide
    for cuts in ((), (1, 7, 90)):
        harness = folded(*rows, cuts=cuts)
        for table in TABLES:
            assert stored(harness, table) == expected.stored(table), table
        assert harness.counts["applied"] + harness.counts["duplicate"] == 400


@pytest.mark.parametrize("seed", range(6))
def test_batches_and_crashes_change_nothing(seed: int) -> None:
    rows = life(seed, 150)
    for projection in (FEW, BODIES):
        disturbed = assert_replay_deterministic(projection, rows, seed, memory, batch_max=25)
        assert disturbed.crashes > 0


def test_a_post_reaches_who_follows_at_that_moment() -> None:
    rows = [
        follow("u", "a"),
        post("a", "1"),
        follow("v", "a"),
        relate("u", "unfollowed", "a"),
        post("a", "2"),
    ]
    harness = folded(*rows)
    assert feed(harness, "v") == ["2", "1"]
    assert feed(harness, "u") == []


def test_a_follow_fills_the_feed_and_an_unfollow_empties_it() -> None:
    posts = [post("a", str(n), NOON_MS + n) for n in range(9)]
    rows = [*posts, follow("u", "a"), post("b", "x"), follow("u", "b")]
    filled = folded(*rows)
    assert feed(filled, "u") == ["8", "7", "6", "5", "4", "x"]
    left = folded(
        *posts, follow("u", "a"), post("b", "x"), follow("u", "b"), relate("u", "unfollowed", "a")
    )
    assert feed(left, "u") == ["x"]


def test_to_follow_twice_is_to_follow_once() -> None:
    harness = folded(follow("u", "a"), follow("u", "a"), relate("v", "unfollowed", "a"))
    assert harness.counts == {"applied": 1, "duplicate": 2}


def test_a_block_ends_the_follow_and_is_known_from_both_sides() -> None:
    harness = folded(follow("u", "a"), post("a", "1"), relate("u", "blocked", "a"), post("a", "2"))
    assert feed(harness, "u") == []
    assert stored(harness, "hidden") == {("u", "a", "blocked")}
    assert stored(harness, "blockers") == {("a", "u")}
    undone = folded(
        relate("u", "blocked", "a"), relate("u", "muted", "a"), relate("u", "unblocked", "a")
    )
    assert (stored(undone, "hidden"), stored(undone, "blockers")) == ({("u", "a", "muted")}, set())


def test_who_is_away_is_left_out_and_filled_when_they_come_back() -> None:
    later_ms = NOON_MS + 36 * HOUR_MS
    rows = [
        follow("u", "a"),
        follow("v", "a"),
        post("a", "1"),
        post("x", "0", later_ms),
        opened("v", later_ms),
    ]
    away = folded(*rows, post("a", "2", later_ms))
    assert (feed(away, "u"), feed(away, "v")) == (["1"], ["2", "1"])
    back = folded(*rows, post("a", "2", later_ms), opened("u", later_ms))
    assert feed(back, "u") == ["2", "1"]


def test_posts_of_wide_authors_go_to_nobodys_feed() -> None:
    fans = [follow(f"u{n}", "a") for n in range(5)]
    harness = folded(
        *fans[:4],
        post("a", "1"),
        fans[4],
        post("a", "2"),
        relate("u4", "unfollowed", "a"),
        post("a", "3"),
    )
    assert feed(harness, "u0") == ["1"]
    assert feed(harness, "u4") == []
    assert stored(harness, "wide") == {("a",)}
    assert len(stored(harness, "outbox")) == 3


def test_a_feed_is_cut_to_its_newest_and_what_was_cut_stays_away() -> None:
    posts = [post(author, f"{author}{n:02}", NOON_MS + n) for n in range(10) for author in "ab"]
    rows = [follow("u", "a"), follow("u", "b"), *posts]
    assert len(feed(folded(*rows), "u")) == 12
    for cuts in ((), (1, 21), (1,) * 30):
        left = feed(folded(*rows, relate("u", "unfollowed", "b"), cuts=cuts), "u")
        assert left == [f"a{n:02}" for n in (9, 8, 7, 6, 5, 4)]


def test_a_removed_post_has_no_body() -> None:
    rows = [post("a", "1"), post("a", "2"), remove("a", "1")]
    for cuts in ((), (2,)):
        harness = folded(*rows, projection=BODIES, cuts=cuts)
        assert harness.rows("posts")["post_id"].to_list() == ["2"]


def test_the_product_has_the_limits_that_are_documented() -> None:
    assert store.HOME.table("feeds") == replace(FEEDS, entries_max=800)
    assert (Feed().followers_max, Feed().active_ms) == (10_000, 14 * 24 * HOUR_MS)
