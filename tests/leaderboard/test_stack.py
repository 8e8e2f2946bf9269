"""Scores in at the API, through Kafka, the agent and Redis, and out at the API."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests import stack
from tests.leaderboard.log import DAY, Event, T, back, ban, naive, score

pytestmark = pytest.mark.stack

EVENTS_URL = "/v1/leaderboard/events:batch"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with stack.worker(tmp_path_factory.mktemp("worker"), "leaderboard"):
        yield


@pytest.fixture
async def api(worker: None, tmp_path: Any) -> AsyncIterator[stack.Api]:
    async with stack.api(tmp_path) as opened:
        yield opened


@pytest.fixture
def tag() -> str:
    """Begins the names of this run, since the topic holds what others wrote."""
    return uuid.uuid4().hex[:8]


def body(*events: Event) -> dict[str, Any]:
    return {"events": [{"type": type(event).__name__, **asdict(event)} for event in events]}


def now() -> int:
    """Milliseconds from `T` to now: the topic may have reached now."""
    return int(time.time() * 1_000) - T


def season(tag: str) -> list[Event]:
    """Three days of 40 players, two scores each, with repeats, bans and a reinstatement."""
    chance = random.Random(8)
    start = now() - 2 * DAY
    log: list[Event] = [
        score(
            f"{tag}-{n}",
            chance.randrange(6),
            start + chance.randrange(2 * DAY),
            f"{tag}-p{n % 40}",
            board=tag,
        )
        for n in range(80)
    ]
    log += chance.choices(log, k=16)
    chance.shuffle(log)
    at = now()
    cheats = [f"{tag}-p{n}" for n in (3, 17, 20)]
    log[60:60] = [ban(cheat, f"ban-{cheat}", at) for cheat in cheats]
    log.append(back(cheats[0], f"back-{tag}", at))
    return [*log, score(f"{tag}-again", 2, at, cheats[0], board=tag)]


async def test_what_is_sent_is_read_back_as_a_sort_of_it(api: stack.Api, tag: str) -> None:
    log = season(tag)
    await api.write(EVENTS_URL, body(*log))

    for (board, _, period, start_ms), places in naive(log).boards().items():
        at = datetime.fromtimestamp(start_ms / 1_000, UTC).date().isoformat()
        which = {"period": period} if period == "all" else {"period": period, "at": at}
        url = f"/v1/leaderboards/{board}"
        standings = [
            {"rank": n, "player_id": player, "score": points, "reached_ms": reached}
            for n, (player, points, reached) in enumerate(places, 1)
        ]
        top = await api.read(f"{url}/top", **which)
        assert top.json() == standings, (period, at)
        count = await api.read(f"{url}/count", **which)
        assert count.json() == {"players": len(places)}
        for n in {0, 1, len(places) // 2, len(places) - 1} & set(range(len(places))):
            me = places[n][0]
            rank = await api.read(f"{url}/rank/{me}", **which)
            assert rank.json() == standings[n]
            around = await api.read(f"{url}/around/{me}", **which, span=1)
            assert around.json() == standings[max(0, n - 1) : n + 2]
            percentile = (await api.read(f"{url}/percentile/{me}", **which)).json()
            assert (percentile["rank"], percentile["players"]) == (n + 1, len(places))


async def test_read_your_writes(api: stack.Api, tag: str) -> None:
    for points in range(1, 4):
        await api.write(
            "/v1/scores", {"playerId": tag, "board": tag, "delta": 5, "eventTime": T + now()}
        )
        rank = await api.read(f"/v1/leaderboards/{tag}/rank/{tag}")
        assert rank.json()["score"] == 5 * points


async def test_a_ban_closes_the_gap(api: stack.Api, tag: str) -> None:
    players = [f"{tag}-{n}" for n in range(4)]
    log = [score(f"{p}-s", 9 - n, now(), p, board=tag) for n, p in enumerate(players)]
    await api.write(EVENTS_URL, body(*log))
    await api.write(EVENTS_URL, body(ban(players[1], f"{tag}-ban", now())))
    top = (await api.read(f"/v1/leaderboards/{tag}/top")).json()
    assert [(s["rank"], s["player_id"]) for s in top] == [
        (1, players[0]), (2, players[2]), (3, players[3]),
    ]  # fmt: skip
    gone = await api.read(f"/v1/leaderboards/{tag}/rank/{players[1]}")
    assert gone.status_code == 404


async def test_a_repeat_and_a_conflict_change_nothing(api: stack.Api, tag: str) -> None:
    one = score(f"{tag}-s", 5, now(), tag, board=tag)
    await api.write(EVENTS_URL, body(one, one, replace(one, points=6)))
    rank = await api.read(f"/v1/leaderboards/{tag}/rank/{tag}")
    assert rank.json()["score"] == 5


async def test_a_board_nobody_knows_is_empty(api: stack.Api, tag: str) -> None:
    await api.write(EVENTS_URL, body(score(f"{tag}-s", 5, now(), tag, board=tag)))
    top = await api.read(f"/v1/leaderboards/{tag}-other/top")
    assert top.json() == []
    count = await api.read(f"/v1/leaderboards/{tag}-other/count")
    assert count.json() == {"players": 0}
