"""The read routes ask their reader the right question and pass the answer on."""

from __future__ import annotations

from datetime import UTC, date, datetime

import httpx
import pytest
from fastapi import FastAPI

from api.routes.leaderboard import Board
from tests.api.conftest import FakeReads, client_of, problem_of


@pytest.mark.parametrize(
    ("query", "board"),
    [
        ("", Board("b", "SUM", "all", None)),
        ("?operator=BEST&period=week&at=2026-01-31", Board("b", "BEST", "week", date(2026, 1, 31))),
        ("?operator=LAST&period=day&at=2024-02-29", Board("b", "LAST", "day", date(2024, 2, 29))),
    ],
)
async def test_a_board_is_named_by_the_query(
    client: httpx.AsyncClient, reads: FakeReads, query: str, board: Board
) -> None:
    answer = await client.get(f"/v1/leaderboards/b/top{query}")

    assert answer.json() == [{"rank": 1, "player_id": "p", "score": 9, "reached_ms": 1}]
    assert reads.asked == [(board, 100)]


async def test_a_day_is_today_in_utc_by_default(
    client: httpx.AsyncClient, reads: FakeReads
) -> None:
    before = datetime.now(UTC).date()
    await client.get("/v1/leaderboards/b/top?period=day&k=3")
    after = datetime.now(UTC).date()

    ((board, k),) = reads.asked
    assert before <= board.at <= after
    assert k == 3


@pytest.mark.parametrize("what", ["rank", "around", "percentile"])
async def test_a_player_is_on_the_board_or_404(client: httpx.AsyncClient, what: str) -> None:
    assert (await client.get(f"/v1/leaderboards/b/{what}/p")).status_code == 200

    absent = await client.get(f"/v1/leaderboards/b/{what}/nobody")

    assert problem_of(absent, 404)["type"] == "urn:headrace:problem:not-on-the-board"


async def test_minutes_take_both_forms_of_time(client: httpx.AsyncClient, reads: FakeReads) -> None:
    answer = await client.get(
        "/v1/ads/campaigns/c/minutes",
        params={"from": "2026-01-01T00:00:00Z", "to": "1767225660000"},
    )

    assert answer.status_code == 200
    assert reads.asked == [("c", 1_767_225_600_000, 1_767_225_660_000)]


async def test_the_best_ads_of_one_campaign_and_of_all(
    client: httpx.AsyncClient, reads: FakeReads
) -> None:
    await client.get("/v1/ads/campaigns/c/ads/top?n=3&by=cost")
    await client.get("/v1/ads/ads/top")

    assert reads.asked == [("c", "cost", 3), (None, "clicks", 10)]


async def test_totals(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/ads/totals")

    assert answer.json() == {"impressions": 2, "clicks": 1, "cost_micros": 5}


async def test_a_system_without_a_reader_is_503(app: FastAPI, token: str) -> None:
    object.__setattr__(app.state.services, "readers", {})
    async with client_of(app) as client:
        answer = await client.get("/v1/ads/totals", headers={"Authorization": f"Bearer {token}"})

    assert problem_of(answer, 503)["type"] == "urn:headrace:problem:no-read-model"
