"""What the reader answers of boards in Redis, against a sort of the scores."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import date
from typing import Any

import pytest

from schemas.leaderboard.events import SCORES
from sinks.drivers.redis import RedisSink, connect
from sinks.leaderboard import BOARDS, Board, LeaderboardReader, Percentile, Standing
from sinks.readers.redis import RedisReader
from streams.runtime.settings import Settings
from tests.leaderboard.log import DAY, Event, T, back, ban, boards, run_partitions, score

B = Board("b")


@pytest.mark.parametrize(
    ("board", "key"),
    [
        (Board("b", "BEST"), {"board": "b", "operator": "BEST"}),
        (Board("b", "SUM", "day", date(2026, 1, 5)), {"period": "day", "start_ms": T}),
        (Board("b", "SUM", "week", date(2026, 1, 5)), {"period": "week", "start_ms": T}),
        (Board("b", "SUM", "week", date(2026, 1, 11)), {"period": "week", "start_ms": T}),
        (Board("b", "SUM", "week", date(2026, 1, 4)), {"period": "week", "start_ms": T - 7 * DAY}),
        (Board("b", "SUM", "week", date(1, 1, 1)), {"start_ms": -62_135_596_800_000}),
        (Board("b", "SUM", "day", date(9999, 12, 31)), {"start_ms": 253_402_214_400_000}),
    ],
    ids=str,
)
def test_a_board_is_stored_under_the_start_of_its_period(board: Board, key: dict) -> None:
    assert board.key.items() >= key.items()


@pytest.mark.parametrize(
    ("period", "at"), [("all", date(2026, 1, 1)), ("day", None), ("week", None)]
)
def test_a_period_has_a_date_and_all_time_has_none(period: Any, at: date | None) -> None:
    with pytest.raises(ValueError, match=period):
        Board("b", "SUM", period, at)


@pytest.fixture
def sink() -> Iterator[RedisSink]:
    """A read model of this test's own, with its own keys."""
    model = replace(BOARDS, name=f"test-boards-{uuid.uuid4().hex[:8]}")
    client: Any = connect(Settings.read().redis.url.get_secret_value())
    yield RedisSink(model, client)
    for key in client.scan_iter(f"{{{model.name}*"):
        client.delete(key)
    client.close()


@pytest.fixture
async def reader(sink: RedisSink) -> AsyncIterator[LeaderboardReader]:
    opened = LeaderboardReader(
        RedisReader(sink.model, Settings.read().redis.url.get_secret_value())
    )
    yield opened
    await opened.close()


@pytest.mark.stack
async def test_before_anything_is_stored(reader: LeaderboardReader) -> None:
    assert await reader.applied() == {}
    assert await reader.top(B, 10) == []
    assert await reader.count(B) == 0
    assert await reader.rank(B, "p") is None
    assert await reader.around(B, "p", 3) == []
    assert await reader.percentile(B, "p") is None


@pytest.mark.stack
async def test_around_me_has_rank_1_when_i_am_2(sink: RedisSink, reader: LeaderboardReader) -> None:
    log = [score(f"s{n}", 100 - n, n, f"p{n}") for n in range(6)]
    run_partitions(log, sink)
    around = await reader.around(B, "p1", 1)
    assert around == [Standing(n + 1, f"p{n}", 100 - n, T + n) for n in range(3)]
    assert [s.rank for s in await reader.around(B, "p0", 2)] == [1, 2, 3]
    assert [s.rank for s in await reader.around(B, "p5", 2)] == [4, 5, 6]


@pytest.mark.stack
async def test_every_place_of_a_board_with_many_ties(
    sink: RedisSink, reader: LeaderboardReader
) -> None:
    chance = random.Random(1)
    log: list[Event] = [
        score(f"s{n}", chance.randrange(-2, 3), chance.randrange(5), f"p{n % 60}")
        for n in range(150)
    ]
    places = boards(run_partitions(log, sink))["b", "SUM", "all", 0]
    expected = [Standing(n, *place) for n, place in enumerate(places, 1)]
    assert len({s.score for s in expected}) < len(expected) / 3, "ties are what this is about"
    assert await reader.count(B) == len(expected) == 60
    assert await reader.top(B, 7) == expected[:7]
    assert await reader.top(B, 1_000) == expected
    for n, standing in enumerate(expected):
        me = standing.player_id
        assert await reader.rank(B, me) == standing
        assert await reader.around(B, me, 4) == expected[max(0, n - 4) : n + 5]
        assert await reader.percentile(B, me) == Percentile(
            me, n + 1, 60, pytest.approx(100 * (59 - n) / 59)
        )


@pytest.mark.stack
async def test_alone_on_a_board(sink: RedisSink, reader: LeaderboardReader) -> None:
    run_partitions([score("1")], sink)
    assert await reader.percentile(B, "p") == Percentile("p", 1, 1, 100.0)


@pytest.mark.stack
async def test_past_days_and_weeks_stay_readable(
    sink: RedisSink, reader: LeaderboardReader
) -> None:
    run_partitions([score(str(n), n + 1, n * DAY) for n in range(9)], sink)
    for n in range(7):
        day = Board("b", "SUM", "day", date(2026, 1, 5 + n))
        assert await reader.top(day, 5) == [Standing(1, "p", n + 1, T + n * DAY)]
        week = await reader.rank(Board("b", "SUM", "week", date(2026, 1, 5 + n)), "p")
        assert week == Standing(1, "p", sum(range(1, 8)), T + 6 * DAY)
    assert await reader.top(Board("b", "SUM", "day", date(2026, 1, 4)), 5) == []


@pytest.mark.stack
async def test_banned_players_are_gone_and_the_rest_moves_up(
    sink: RedisSink, reader: LeaderboardReader
) -> None:
    log: list[Event] = [score(f"s{n}", 100 - n, n, f"p{n}") for n in range(8)]
    log += [ban("p0", "b0"), ban("p4", "b4"), score("more", 500, 9, "p0"), back("p4", "r4")]
    run_partitions([*log, score("again", 1, 9, "p4")], sink)
    top = await reader.top(B, 10)
    assert [s.player_id for s in top] == ["p1", "p2", "p3", "p5", "p6", "p7", "p4"]
    assert [s.rank for s in top] == list(range(1, 8))
    assert await reader.rank(B, "p0") is None
    assert await reader.rank(B, "p4") == Standing(7, "p4", 1, T + 9)


@pytest.mark.stack
async def test_applied_is_by_topic_and_partition(
    sink: RedisSink, reader: LeaderboardReader
) -> None:
    harnesses = run_partitions([score(f"s{n}", 1, n, f"p{n}") for n in range(40)], sink)
    assert await reader.applied() == {
        (SCORES.name, h.partition): h.next_offset for h in harnesses if h.next_offset
    }
