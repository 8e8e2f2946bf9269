"""What operators see: probes, metrics, log, headers."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from structlog.testing import capture_logs

from api.health import remembered
from tests.api.conftest import CLICK, client_of, problem_of


async def test_alive(app: FastAPI) -> None:
    async with client_of(app) as client:
        assert (await client.get("/livez")).json() == {"status": "ok"}


@pytest.mark.parametrize(("state", "status"), [("ok", 200), ("no answer: _TRANSPORT", 503)])
async def test_ready_when_every_part_is(app: FastAPI, state: str, status: int) -> None:
    async def ready() -> Mapping[str, str]:
        return {"kafka": state}

    object.__setattr__(app.state.services, "ready", ready)
    async with client_of(app) as client:
        answer = await client.get("/readyz")

    assert answer.status_code == status
    assert answer.json()["parts"] == {"kafka": state}


async def test_probes_ask_the_broker_once() -> None:
    asked = []

    async def check() -> Mapping[str, str]:
        asked.append(1)
        await asyncio.sleep(0)
        return {"kafka": "ok"}

    ask = remembered(check, seconds=3_600)

    assert await asyncio.gather(*(ask() for _ in range(100))) == [{"kafka": "ok"}] * 100
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("host", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.7", {}, 403),
        ("::ffff:10.0.0.7", {}, 403),
        ("testclient", {}, 403),
        ("127.0.0.1", {"X-Forwarded-For": "10.0.0.7"}, 403),
        ("127.0.0.1", {"Forwarded": "for=10.0.0.7"}, 403),
    ],
)
async def test_metrics_are_for_this_machine(
    app: FastAPI, host: str, headers: dict[str, str], status: int
) -> None:
    async with client_of(app, host) as client:
        answer = await client.get("/metrics", headers=headers)

    assert answer.status_code == status


async def test_metrics_have_templates_and_no_paths(client: httpx.AsyncClient) -> None:
    await client.get("/v1/leaderboards/secret-board/top")
    await client.get("/no/such/path")
    await client.request("BREW", "/v1/scores")

    text = (await client.get("/metrics")).text

    labels = '{method="GET",route="/v1/leaderboards/{board}/top",status="200"} 1.0'
    assert f"http_server_request_duration_seconds_count{labels}" in text
    assert 'route="none",status="404"' in text
    assert 'method="other"' in text
    assert "secret-board" not in text
    assert "/no/such" not in text


async def test_the_log_has_the_request_but_no_token_no_body_no_query(
    client: httpx.AsyncClient, token: str
) -> None:
    with capture_logs() as logs:
        await client.post("/v1/ads/events?password=hunter2", json=CLICK)

    (line,) = [entry for entry in logs if entry["event"] == "request"]
    assert line["status"] == 202
    assert line["subject"] == "tester"
    assert line["route"] == "/v1/ads/events"
    text = json.dumps(line)
    assert token not in text
    assert "hunter2" not in text
    assert CLICK["campaign_id"] not in text


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("019b0a3c-5f51-7bd2-9f8c-6f0f2f5a7c11", True),
        ("x", False),
        ('"}\\n{"level":"error"', False),
        ("a" * 5_000, False),
    ],
)
async def test_a_request_id_is_taken_over_when_it_is_one(
    client: httpx.AsyncClient, sent: str, kept: bool
) -> None:
    answer = await client.get("/livez", headers={"X-Request-ID": sent})

    given = answer.headers["x-request-id"]
    assert (given == sent) == kept
    assert uuid.UUID(given)


async def test_every_answer_has_the_security_headers(app: FastAPI) -> None:
    async with client_of(app) as client:
        answers: list[Any] = [await client.get("/livez"), await client.get("/nothing")]

    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers


async def test_cross_origin_requests_are_not_invited(client: httpx.AsyncClient) -> None:
    headers = {"Origin": "https://evil.test", "Access-Control-Request-Method": "POST"}

    answer = await client.options("/v1/scores", headers=headers)

    problem_of(answer, 405)
    assert "access-control-allow-origin" not in answer.headers


async def test_info(client: httpx.AsyncClient) -> None:
    assert (await client.get("/info")).json() == {"version": "test"}
