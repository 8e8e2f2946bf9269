"""The read routes ask their reader the right question and pass the answer on."""

from __future__ import annotations

from datetime import UTC, date, datetime

import httpx
import pytest
from fastapi import FastAPI

from sinks.leaderboard import Board
from streams.runtime.sink import SinkRejected, SinkUnavailable
from tests.api.conftest import FakeReads, client_of, problem_of

TOTALS = "/v1/ads/totals?from=0&to=3600000"


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


SPAN = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T02:00:00Z"}
FROM, TO = 1_767_225_600_000, 1_767_232_800_000


async def test_the_best_ads_and_campaigns(client: httpx.AsyncClient, reads: FakeReads) -> None:
    ads = await client.get("/v1/ads/campaigns/c/ads/top", params={**SPAN, "n": 3, "by": "cost"})
    campaigns = await client.get("/v1/ads/campaigns/top", params=SPAN)

    assert reads.asked == [("c", "cost_micros", 3, FROM, TO), ("clicks", 10, FROM, TO)]
    counts = {"impressions": 4, "clicks": 3, "cost_micros": 5}
    assert ads.json() == [{**counts, "ad_id": "a"}]
    assert campaigns.json() == [{**counts, "campaign_id": "c"}]


async def test_a_campaign_may_be_named_top(client: httpx.AsyncClient, reads: FakeReads) -> None:
    await client.get("/v1/ads/campaigns/top/minutes", params=SPAN)

    assert reads.asked == [("top", FROM, TO)]


async def test_minutes_and_adjustments(client: httpx.AsyncClient) -> None:
    minutes = await client.get("/v1/ads/campaigns/c/minutes", params=SPAN)
    adjustments = await client.get("/v1/ads/campaigns/c/adjustments", params=SPAN)

    counts = {"start_ms": FROM, "impressions": 1}
    assert minutes.json() == [{**counts, "clicks": 1, "cost_micros": 5, "final": True}]
    assert adjustments.json() == [{**counts, "clicks": 0, "cost_micros": 0}]


async def test_totals_are_counted_twice(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/ads/totals", params=SPAN)

    counts = {"impressions": 2, "clicks": 1, "cost_micros": 5}
    assert answer.json() == {
        "stream": counts,
        "recount": counts,
        "difference": dict.fromkeys(counts, 0),
    }


@pytest.mark.parametrize(
    ("path", "span"),
    [
        ("campaigns/c/minutes", {"from": 0, "to": 86_400_001}),
        ("campaigns/c/adjustments", {"from": 0, "to": 86_400_001}),
        ("campaigns/c/ads/top", {"from": 60_000, "to": 0}),
        ("campaigns/top", {"from": 0, "to": 60_000}),
        ("campaigns/top", {"from": 0, "to": 32 * 86_400_000}),
        ("totals", {"from": 1, "to": 3_600_001}),
        ("totals", {}),
    ],
)
async def test_a_span_is_bounded_and_of_whole_hours_where_hours_are_summed(
    client: httpx.AsyncClient, path: str, span: dict[str, int]
) -> None:
    problem_of(await client.get(f"/v1/ads/{path}", params=span), 422)


async def test_the_size_of_a_board(client: httpx.AsyncClient, reads: FakeReads) -> None:
    answer = await client.get("/v1/leaderboards/b/count?operator=BEST")

    assert answer.json() == {"players": 4}
    assert reads.asked == [Board("b", "BEST")]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SinkUnavailable("connection refused"), 503),
        (SinkRejected("OOM", transient=True), 503),
        (SinkRejected("no such column"), 500),
    ],
)
async def test_a_store_that_does_not_answer_is_503(
    client: httpx.AsyncClient, reads: FakeReads, error: Exception, status: int
) -> None:
    reads.fails_with = error

    found = problem_of(await client.get("/v1/leaderboards/b/count"), status)

    assert str(error) not in found["detail"]


async def test_a_system_without_a_reader_is_503(app: FastAPI, token: str) -> None:
    object.__setattr__(app.state.services, "readers", {})
    async with client_of(app) as client:
        answer = await client.get(TOTALS, headers={"Authorization": f"Bearer {token}"})

    assert problem_of(answer, 503)["type"] == "urn:headrace:problem:no-read-model"
