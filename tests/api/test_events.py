"""Sending events: what is accepted, where it lands, what the answer says."""

from __future__ import annotations

import uuid

import httpx
import pytest

from connectors.producer import Saturated, Undelivered
from tests.api.conftest import CLICK, SCORE, MemoryProducer, problem_of


async def test_an_event_is_sent_and_its_place_answered(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    answer = await client.post("/v1/ads/events", json=CLICK)

    assert answer.status_code == 202
    place = answer.json()["position"]
    assert answer.headers["headrace-position"] == f"ads.events/{place['partition']}/0"
    ((topic, record, row),) = producer.sent
    assert (topic, record) == ("ads.events", "AdClicked")
    assert row == {
        "click_id": "clk-1",
        "impression_id": None,
        "user_id": "u-7",
        "campaign_id": "spring",
        "ad_id": "banner",
        "event_time": 1_767_225_601_250,
        "country": "ZZ",
        "cost_micros": 0,
        "user_agent": None,
    }


async def test_an_event_without_id_gets_a_uuid7(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    event = {name: value for name, value in CLICK.items() if name != "click_id"}

    answer = await client.post("/v1/ads/events", json=event)

    made = answer.json()["id"]
    assert uuid.UUID(made).version == 7
    assert producer.sent[0][2]["click_id"] == made


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01T00:00:01.250Z",
        "2026-01-01t00:00:01.250999999z",
        "2026-01-01T08:00:01.250+08:00",
        "2025-12-31T19:00:01.250-05:00",
        1_767_225_601_250,
    ],
)
async def test_one_instant_however_it_is_written(
    client: httpx.AsyncClient, producer: MemoryProducer, text: object
) -> None:
    answer = await client.post("/v1/ads/events", json={**CLICK, "event_time": text})

    assert answer.status_code == 202, answer.text
    assert producer.sent[0][2]["event_time"] == 1_767_225_601_250


async def test_a_batch_answers_the_last_offset_of_each_partition(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    events = [{**CLICK, "click_id": f"c{i}", "user_id": f"u-{i % 3}"} for i in range(9)]

    answer = await client.post("/v1/ads/events:batch", json={"events": events})

    body = answer.json()
    assert answer.status_code == 202
    assert (body["accepted"], body["ids"]) == (9, [f"c{i}" for i in range(9)])
    stated = answer.headers["headrace-position"].split(", ")
    assert stated == [f"{p['topic']}/{p['partition']}/{p['offset']}" for p in body["positions"]]
    assert sum(p["offset"] + 1 for p in body["positions"]) == 9
    assert len(producer.sent) == 9


async def test_one_bad_event_and_nothing_of_the_batch_is_sent(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    events = [CLICK, CLICK, {**CLICK, "cost_micros": -1}]

    answer = await client.post("/v1/ads/events:batch", json={"events": events})

    (error,) = problem_of(answer, 422)["errors"]
    assert error["pointer"] == "#/events/2/cost_micros"
    assert producer.sent == []


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/ads/events", {**CLICK, "ad_id": 5}, "#/ad_id"),
        (
            "/v1/ads/events",
            {"type": "AdClicked", **dict.fromkeys(CLICK, "AdClicked")},
            "#/event_time",
        ),
        ("/v1/ads/events", {k: v for k, v in CLICK.items() if k != "ad_id"}, "#/ad_id"),
        ("/v1/ads/events", {**CLICK, "a/b~c": 1}, "#/a~1b~0c"),
        ("/v1/ads/events:batch", {"events": [CLICK, {**CLICK, "x": 1}]}, "#/events/1/x"),
        ("/v1/ads/events:batch", {"events": [CLICK, 7]}, "#/events/1"),
        ("/v1/ads/events:batch", {}, "#/events"),
        ("/v1/scores", {"playerId": "p", "points": 1}, "#/board"),
    ],
)
async def test_an_error_points_into_the_body(
    client: httpx.AsyncClient, path: str, body: dict[str, object], pointer: str
) -> None:
    errors = problem_of(await client.post(path, json=body), 422)["errors"]

    assert pointer in [error["pointer"] for error in errors]


@pytest.mark.parametrize("count", [0, 1_001])
async def test_a_batch_has_1_to_1000_events(client: httpx.AsyncClient, count: int) -> None:
    answer = await client.post("/v1/ads/events:batch", json={"events": [CLICK] * count})

    problem_of(answer, 422)


@pytest.mark.parametrize("more", [{"points": 5}, {"delta": 5}, {"points": 5, "operator": "BEST"}])
async def test_a_score_in_the_words_of_games(
    client: httpx.AsyncClient, producer: MemoryProducer, more: dict[str, object]
) -> None:
    score = {"playerId": "p", "board": "b", "scoreId": "s", "eventTime": 7, **more}

    answer = await client.post("/v1/scores", json=score)

    assert answer.status_code == 202, answer.text
    ((topic, record, row),) = producer.sent
    assert (topic, record) == ("leaderboard.scores", "ScoreSubmitted")
    assert row == {
        "score_id": "s",
        "board": "b",
        "operator": more.get("operator", "SUM"),
        "player_id": "p",
        "points": 5,
        "event_time": 7,
    }


@pytest.mark.parametrize(
    "more",
    [{}, {"points": 1, "delta": 1}, {"delta": 1, "operator": "LAST"}, {"points": 1, "x": 1}],
)
async def test_a_score_has_points_or_delta(
    client: httpx.AsyncClient, producer: MemoryProducer, more: dict[str, object]
) -> None:
    problem_of(await client.post("/v1/scores", json={"playerId": "p", "board": "b", **more}), 422)
    assert producer.sent == []


async def test_a_full_producer_is_503_with_retry_after(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    producer.fails_with = Saturated(50_000)

    answer = await client.post("/v1/scores", json=SCORE)

    assert problem_of(answer, 503)["type"] == "urn:headrace:problem:busy"
    assert answer.headers["retry-after"] == "1"


async def test_an_unconfirmed_event_is_503_and_says_that_it_may_be_stored(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    producer.fails_with = Undelivered("broker: timed out")

    answer = await client.post("/v1/scores", json=SCORE)

    detail = problem_of(answer, 503)["detail"]
    assert "may or may not be stored" in detail
    assert "broker" not in detail


async def test_a_fault_of_ours_is_a_500_that_tells_nothing(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    producer.fails_with = RuntimeError("password=hunter2")

    answer = await client.post("/v1/scores", json=SCORE)

    problem_of(answer, 500)
    assert "hunter2" not in answer.text
