"""Rankings against a naive model: merges, order, ranks, removal; for the stores that have them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinks.drivers.redis import RedisSink
from sinks.readers.redis import Ranked, RedisReader
from streams.runtime.sink import RankMerge, SinkRejected
from tests.drivers.model import ranked, span, stored, unranked
from tests.drivers.rigs import RedisClusterRig, RedisRig, Rig

LARGEST = 2**53 - 1
Row = tuple[int, str, str, int, int]
Board = dict[tuple[int, str, str], tuple[int, int]]

rows = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(["go", "ch,ess"]),
        st.sampled_from(["ann", "bob", "Bob", "", "é", "a\x00b", "z,1", "日本"]),
        st.integers(-3, 3) | st.sampled_from([LARGEST, -LARGEST, 2**63 - 1, -(2**63)]),
        st.integers(-2, 2) | st.sampled_from([2**52 - 1, 1 - 2**52]),
    ),
    max_size=6,
    unique_by=lambda row: row[:3],
)
writes = st.lists(st.tuples(st.sampled_from(list(RankMerge)), rows, st.sets(
    st.sampled_from(["ann", "bob", "", "日本"]), max_size=1)), max_size=5)  # fmt: skip


def naive(board: Board, how: RankMerge, new: list[Row], gone: set[str]) -> None:
    """The docstrings of `RankMerge`, row by row."""
    for day, game, player, raw, reached in new:
        score = max(-LARGEST, min(LARGEST, raw))
        key = (day, game, player)
        old = board.get(key)
        if old is None:
            board[key] = (score, reached)
        elif how is RankMerge.SUM:
            total = max(-LARGEST, min(LARGEST, old[0] + score))
            board[key] = (total, max(old[1], reached))
        elif how is RankMerge.BEST:
            better = score > old[0] or (score == old[0] and reached < old[1])
            board[key] = (score, reached) if better else old
        else:
            later = reached > old[1] or (reached == old[1] and score > old[0])
            board[key] = (score, reached) if later else old
    for key in [key for key in board if key[2] in gone]:
        del board[key]


def order(board: Board, day: int, game: str) -> list[Ranked]:
    """The members of one board, first to last."""
    members = [(p, *s) for (d, g, p), s in board.items() if (d, g) == (day, game)]
    members.sort(key=lambda m: (-m[1], m[2], m[0].encode()))
    return [Ranked(i, *member) for i, member in enumerate(members, 1)]


several = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@several
@given(writes)
def test_merges_are_those_of_the_naive_model(
    ranking_rig: Rig, script: list[tuple[RankMerge, list[Row], set[str]]]
) -> None:
    sink = ranking_rig.sink()
    sink.prepare(2)
    board: Board = {}
    for i, (how, new, gone) in enumerate(script):
        naive(board, how, new, gone)
        changes = [ranked(*new, merge=how), unranked(*gone)]
        sink.write(2, span(i or None, i + 1, *changes))
    expected = [(*key, *score, 0) for key, score in board.items()]
    assert stored(sink, "scores", version=2) == sorted(expected, key=repr)
    sink.drop(2)
    assert stored(sink, "scores", version=2) == []


def test_unrank_is_for_one_partition_and_all_boards(ranking_rig: Rig) -> None:
    sink = ranking_rig.sink()
    sink.prepare(1)
    on = [(d, g, p, 1, 1) for d in (0, 1) for g in ("go", "chess") for p in ("ann", "bob")]
    sink.write(1, span(None, 1, ranked(*on)))
    sink.write(1, span(None, 1, ranked(*on), partition=1))
    sink.write(1, span(1, 2, unranked("ann", "nobody"), ranked((0, "go", "ann", 5, 5))))
    assert {row[:3] for row in stored(sink, "scores", partition=0) if row[2] == "ann"} == {
        (0, "go", "ann")
    }
    assert len(stored(sink, "scores", partition=1)) == 8


def test_expired_boards_go_and_leave_no_index(ranking_rig: Rig) -> None:
    sink = ranking_rig.sink()
    sink.prepare(1)
    many = [(d, "go", f"p{i}", i, i) for d in range(4) for i in range(1500)]
    sink.write(1, span(None, 1, ranked(*many)))
    for i in range(1, 5):
        sink.write(1, span(i, i + 1, expire={"scores": 3}))
    assert {row[0] for row in stored(sink, "scores")} == {3}
    assert len(stored(sink, "scores")) == 1500
    sink.write(1, span(5, 6, ranked((0, "go", "p1", 7, 7)), unranked("p2")))
    assert (0, "go", "p1", 7, 7, 0) in stored(sink, "scores")
    assert len(stored(sink, "scores")) == 1500


def test_a_lost_reply_adds_no_score_twice(ranking_rig: Rig) -> None:
    from streams.runtime.sink import FenceRefused

    sink = ranking_rig.sink()
    sink.prepare(1)
    write = span(None, 1, ranked((0, "go", "ann", 5, 1)))
    sink.write(1, write)
    with pytest.raises(FenceRefused):
        sink.write(1, write)
    assert stored(sink, "scores") == [(0, "go", "ann", 5, 1, 0)]


def test_a_member_twice_in_one_change_is_refused(ranking_rig: Rig) -> None:
    sink = ranking_rig.sink()
    with pytest.raises(SinkRejected, match="twice"):
        sink.write(1, span(None, 1, ranked((0, "go", "ann", 5, 1), (0, "go", "ann", 6, 2))))
    with pytest.raises(SinkRejected, match="reached_ms"):
        sink.write(1, span(None, 1, ranked((0, "go", "ann", 5, 2**52))))


@pytest.fixture(params=[RedisRig, RedisClusterRig])
async def reading(request: pytest.FixtureRequest) -> AsyncIterator[tuple[RedisRig, RedisReader]]:
    rig = request.param(rankings=True)
    reader = RedisReader(rig.model, rig.url)
    yield rig, reader
    await reader.close()
    rig.close()


@pytest.mark.stack
async def test_ranks_over_partitions_are_exact(reading: tuple[RedisRig, RedisReader]) -> None:
    """Few scores and times, so that most members tie in one or both, in three partitions."""
    rig, reader = reading
    sink, board, at = rig.sink(), {}, {"day_ms": 0, "game": "go"}
    for partition in range(3):
        new = [
            (0, "go", f"{name}{partition}", (i * 7) % 4 - 1, (i * 5) % 3)
            for i, name in enumerate([*"abcXYZé日", "", "aa", "a\x00", "ab,"])
        ]
        naive(board, RankMerge.SUM, new, set())
        sink.write(1, span(None, 1, ranked(*new), partition=partition))
    expected = order(board, 0, "go")
    assert len(expected) == 36
    assert await reader.count("scores", at) == 36
    assert await reader.top("scores", at, 100) == expected
    assert await reader.top("scores", at, 5, start=30) == expected[30:35]
    for place, one in enumerate(expected):
        assert await reader.rank("scores", at, one.member) == one
        around = await reader.around("scores", at, one.member, 4)
        assert around == expected[max(0, place - 4) : place + 5]
    assert await reader.percentile("scores", at, expected[0].member) == 100.0
    assert await reader.percentile("scores", at, expected[-1].member) == 0.0
    assert await reader.rank("scores", at, "nobody") is None
    assert await reader.around("scores", {"day_ms": 9, "game": "go"}, "a0", 3) == []
    assert await reader.top("scores", {"day_ms": 9, "game": "go"}, 3) == []


tied = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["", "a", "aa", "a\x00", "b", "é", "日"]),
        st.integers(-1, 1),
        st.integers(-1, 1),
    ),
    max_size=12,
    unique_by=lambda row: row[1],
)


@pytest.mark.stack
@several
@given(st.lists(st.tuples(st.sampled_from(list(RankMerge)), tied), min_size=1, max_size=4))
def test_every_read_is_that_of_the_naive_model(
    script: list[tuple[RankMerge, list[tuple[int, str, int, int]]]],
) -> None:
    """Members move between places, in three partitions; a member has one partition."""
    rig, board, home = RedisRig(), {}, {}
    sink, at = rig.sink(), {"day_ms": 0, "game": "go"}
    for i, (how, rows_) in enumerate(script):
        for partition in range(3):
            new = [(0, "go", member, score, reached) for p, member, score, reached in rows_
                   if home.setdefault(member, p) == partition]  # fmt: skip
            naive(board, how, new, set())
            sink.write(1, span(i or None, i + 1, ranked(*new, merge=how), partition=partition))
    expected = order(board, 0, "go")

    async def reads() -> None:
        reader = RedisReader(rig.model, rig.url)
        assert await reader.top("scores", at, 100) == expected
        assert await reader.count("scores", at) == len(expected)
        for place, one in enumerate(expected):
            near = expected[max(0, place - 2) : place + 3]
            assert await reader.around("scores", at, one.member, 2) == near
        await reader.close()

    asyncio.run(reads())
    rig.close()


@pytest.mark.stack
def test_boards_that_went_leave_no_key() -> None:
    rig = RedisRig()
    sink = rig.sink()
    sink.write(1, span(None, 1))
    bare = set(rig.snapshot())
    many = [(d, "go", f"p{i}", i, i) for d in range(3) for i in range(50)]
    sink.write(1, span(1, 2, ranked(*many)))
    sink.write(1, span(2, 3, unranked("p7", "p8"), expire={"scores": 2}))
    sink.write(1, span(3, 4, unranked(*(f"p{i}" for i in range(50)))))
    assert {key for key in set(rig.snapshot()) - bare if not key.endswith(b":tables")} == set()
    rig.close()


@pytest.mark.stack
async def test_largest_scores_keep_every_digit(reading: tuple[RedisRig, RedisReader]) -> None:
    rig, reader = reading
    sink: Any = rig.sink()
    assert isinstance(sink, RedisSink)
    new = [(0, "go", f"p{i}", sign * (LARGEST - i), sign * (2**52 - 1 - i))
           for i in range(3) for sign in (1, -1)]  # fmt: skip
    new = [(*row[:2], f"{row[2]}{row[3] > 0}", *row[3:]) for row in new]
    board: Board = {}
    naive(board, RankMerge.LAST, new, set())
    sink.write(1, span(None, 1, ranked(*new)))
    assert await reader.top("scores", {"day_ms": 0, "game": "go"}, 9) == order(board, 0, "go")
