"""Feeds as they are read, over all log partitions, against plain Python."""

from __future__ import annotations

from typing import Any

import pytest

from sinks.feed.ranking import SPREAD_MS, ranked
from sinks.feed.reader import CANDIDATES, FeedReader, Post
from sinks.readers.redis import Entry
from tests.feed.few import Village
from tests.feed.oracle import home
from tests.feed.people import HOUR_MS, NOON_MS, follow, life, opened, post, relate, remove

pytestmark = pytest.mark.usefixtures("few")
DAY_MS = 24 * HOUR_MS


async def pages(read: Any, limit: int, place: Any = None) -> list[Post]:
    found: list[Post] = []
    while True:
        page = await read(limit, place)
        assert len(page.posts) <= limit
        found += page.posts
        place = page.next
        if place is None:
            return found


def newest(reader: FeedReader, user: str) -> Any:
    return lambda limit, place: reader.newest(user, limit, place)


def in_rank(reader: FeedReader, user: str) -> Any:
    return lambda limit, place: reader.ranked(user, limit, place)


def ids(posts: list[Post]) -> list[str]:
    return [one.post_id for one in posts]


@pytest.mark.parametrize("seed", range(3))
async def test_every_feed_is_that_of_the_oracle_page_by_page(seed: int) -> None:
    village, shown = Village(), 0
    village.tell(life(seed, 400, apart_ms=HOUR_MS // 2))
    for user in [f"p{n}" for n in range(8)]:
        expected = home(village.oracles, user)
        shown += len(expected)
        for limit in (3, 100):
            assert ids(await pages(newest(village.reader, user), limit)) == expected
        in_order = ids(await pages(in_rank(village.reader, user), 4))
        assert sorted(in_order) == sorted(expected[:CANDIDATES])
    assert shown > 100


@pytest.mark.parametrize("order", [newest, in_rank])
async def test_a_page_stays_where_it_is_when_newer_posts_come(order: Any) -> None:
    village, authors = Village(), [f"a{n}" for n in range(5)]
    old = [post(a, f"{a}-{n}", NOON_MS + n) for n in range(4) for a in authors]
    village.tell([*(follow("u", a) for a in authors), *old])
    read = order(village.reader, "u")
    whole = ids(await pages(read, 100))
    assert len(whole) == 20
    first = await read(6, None)
    village.tell(post(a, f"{a}-new", NOON_MS + DAY_MS // 2) for a in authors)
    assert ids([*first.posts, *(await pages(read, 6, first.next))]) == whole
    assert len(await pages(read, 100)) == 25


async def test_removed_muted_and_blocked_posts_are_left_out_when_read() -> None:
    village = Village()
    village.tell([*(follow("u", a) for a in "abcd"), *(post(a, a, NOON_MS) for a in "abcd")])
    assert len(await pages(newest(village.reader, "u"), 10)) == 4
    village.tell([remove("a", "a"), relate("u", "muted", "b"), relate("c", "blocked", "u")])
    assert ids(await pages(newest(village.reader, "u"), 10)) == ["d"]
    village.tell([relate("u", "unmuted", "b"), relate("c", "unblocked", "u")])
    assert ids(await pages(newest(village.reader, "u"), 10)) == ["d", "c", "b"]
    assert await village.reader.following("u") == list("abcd")
    assert await village.reader.post("a") is None


async def test_posts_of_wide_authors_are_fetched_and_ones_own() -> None:
    village = Village()
    village.tell([follow(f"u{n}", "a") for n in range(6)])
    village.tell([post("a", "wide"), post("u1", "own", NOON_MS + 1), post("u2", "other")])
    assert ids(await pages(newest(village.reader, "u1"), 10)) == ["own", "wide"]


async def test_who_was_away_reads_all_at_once_and_is_noted() -> None:
    village = Village()
    village.tell([follow("u", "a"), follow("u", "b"), post("a", "1"), post("b", "2")])
    late_ms = NOON_MS + 3 * DAY_MS
    village.tell([post("a", "3", late_ms), post("a", "4", late_ms + 1), post("b", "5", late_ms)])
    village.tell([post("b", "6", late_ms + 2)])
    page = await village.reader.newest("u", 10)
    assert ids(list(page.posts)) == home(village.oracles, "u") == ["6", "4", "5", "3", "2", "1"]
    assert page.unnoted
    village.tell([opened("u", late_ms + 3)])
    again = await village.reader.newest("u", 10)
    assert (again.posts, again.unnoted) == (page.posts, ())


def test_ranking_puts_posts_of_one_author_apart() -> None:
    loud = [Entry(NOON_MS + n, "loud", f"l{n}") for n in range(5)]
    quiet = [Entry(NOON_MS - n * HOUR_MS, "quiet", f"q{n}") for n in range(1, 4)]
    order = [entry.entry for _, entry in ranked([*reversed(loud), *quiet])]
    assert order == ["l4", "q1", "l3", "l2", "q2", "l1", "q3", "l0"]
    assert SPREAD_MS == 2 * HOUR_MS
