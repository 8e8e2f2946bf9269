"""What one client may take of the server: headers, body, time, rate, places."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message, Receive, Scope, Send

from api.issuer import DevIssuer
from api.limits import Rate, Receipt
from api.problem import Problem
from api.routes.pastes import LARGE
from streams.runtime.settings import ApiLimits
from tests.api.conftest import CLICK, SCORE, MemoryProducer, client_of, problem_of


@pytest.fixture
def limits() -> ApiLimits:
    return ApiLimits(
        body_bytes_max=10_000, receipt_timeout_ms=50, concurrency_max=2, large_at_once=2
    )


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


JSON = {"Content-Type": "application/json"}


async def test_headers_over_the_limit_are_431(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/ads/totals", headers={"X-Long": "x" * 65_536})

    problem_of(answer, 431)


async def test_an_address_over_the_limit_is_431(client: httpx.AsyncClient) -> None:
    problem_of(await client.get("/v1/ads/totals?" + "x" * 20_000), 431)


async def test_a_declared_size_over_the_limit_is_413(client: httpx.AsyncClient) -> None:
    body = json.dumps({**CLICK, "user_agent": "x" * 10_000})

    answer = await client.post("/v1/ads/events", content=body, headers=JSON)

    problem_of(answer, 413)
    assert answer.headers["connection"] == "close"


async def test_without_content_length_the_size_is_counted(client: httpx.AsyncClient) -> None:
    endless = chunks(*[b" " * 1_000] * 11)

    problem_of(await client.post("/v1/ads/events", content=endless, headers=JSON), 413)


async def test_a_false_content_length_changes_nothing(client: httpx.AsyncClient) -> None:
    headers = {**JSON, "Content-Length": "5"}

    answer = await client.post(
        "/v1/ads/events", content=chunks(*[b" " * 1_000] * 11), headers=headers
    )

    problem_of(answer, 413)


@pytest.mark.parametrize("length", ["-1", "1e3", "9" * 5_000, "٣", "0x10"])
async def test_a_nonsense_content_length_is_no_500(app: FastAPI, token: str, length: str) -> None:
    headers = [
        (b"authorization", f"Bearer {token}".encode()),
        (b"content-type", b"application/json"),
        (b"content-length", length.encode()),
    ]
    async with client_of(app) as client:
        answer = await client.post(
            "/v1/ads/events", content=chunks(json.dumps(CLICK).encode()), headers=headers
        )

    assert answer.status_code in {202, 413}


async def test_a_body_in_pieces_is_one_body(client: httpx.AsyncClient) -> None:
    whole = json.dumps(CLICK).encode()

    answer = await client.post(
        "/v1/ads/events", content=chunks(whole[:7], b"", whole[7:]), headers=JSON
    )

    assert answer.status_code == 202


async def test_a_body_that_does_not_arrive_is_408(client: httpx.AsyncClient) -> None:
    async def stalls() -> AsyncIterator[bytes]:
        yield b'{"type":'
        await asyncio.Event().wait()

    answer = await client.post("/v1/ads/events", content=stalls(), headers=JSON)

    problem_of(answer, 408)
    assert answer.headers["connection"] == "close"


async def test_nothing_is_read_for_strangers(app: FastAPI) -> None:
    read: list[int] = []

    async def watched() -> AsyncIterator[bytes]:
        read.append(1)
        yield b"x" * 1_000

    async with client_of(app) as client:
        answer = await client.post("/v1/ads/events", content=watched(), headers=JSON)

    problem_of(answer, 401)
    assert read == []


async def test_more_requests_than_places_are_503(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    gate, inside = asyncio.Event(), asyncio.Semaphore(0)
    sends = producer.send_many

    async def waits(topic: str, rows: object) -> object:
        inside.release()
        await gate.wait()
        return await sends(topic, rows)  # type: ignore[arg-type]

    producer.send_many = waits  # type: ignore[assignment, method-assign]
    first = [asyncio.create_task(client.post("/v1/scores", json=SCORE)) for _ in range(2)]
    for _ in first:
        await inside.acquire()

    refused = await client.post("/v1/scores", json=SCORE)

    problem_of(refused, 503)
    assert refused.headers["retry-after"] == "1"
    assert (await client.get("/livez")).status_code == 200  # probes need no place
    gate.set()
    assert [(await task).status_code for task in first] == [202, 202]
    assert (await client.post("/v1/scores", json=SCORE)).status_code == 202  # places come back


async def test_a_place_comes_back_after_an_error(
    client: httpx.AsyncClient, producer: MemoryProducer
) -> None:
    producer.fails_with = RuntimeError("boom")

    statuses = [(await client.post("/v1/scores", json=SCORE)).status_code for _ in range(5)]

    assert statuses == [500] * 5


def paste(size: int) -> bytes:
    return json.dumps({"content": "x" * size}).encode()


async def test_only_some_paths_take_large_bodies_and_those_have_a_bound_too(
    client: httpx.AsyncClient,
) -> None:
    large = LARGE["/v1/pastes"]
    answer = await client.post("/v1/pastes", content=chunks(paste(200_000)), headers=JSON)
    problem_of(answer, 503)  # it was taken in: there is nobody here to store it
    endless = chunks(*[b" " * 1_000_000] * (large // 1_000_000 + 1))
    problem_of(await client.post("/v1/pastes", content=endless, headers=JSON), 413)
    declared = {**JSON, "Content-Length": str(large + 1)}
    problem_of(await client.post("/v1/pastes", content=chunks(b"{"), headers=declared), 413)
    problem_of(await client.post("/v1/scores", content=paste(200_000), headers=JSON), 413)


async def test_a_large_body_may_take_as_long_as_its_parts_together() -> None:
    """Six parts, each within the time of one, all together beyond it; then one that stops."""
    limits = ApiLimits(body_bytes_max=10, receipt_timeout_ms=600)
    got: list[bytes] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        got.append((await receive())["body"])

    async def sent(parts: int, pause_s: float) -> None:
        left = parts

        async def receive() -> Message:
            nonlocal left
            left -= 1
            await asyncio.sleep(pause_s if left >= 0 else 60.0)
            return {
                "type": "http.request",
                "body": b"x" * 11,
                "more_body": left > 0 or pause_s == 0,
            }

        scope = {"type": "http", "path": "/large", "headers": []}
        await Receipt(app, limits, large={"/large": 100})(
            scope, receive, lambda _: asyncio.sleep(0)
        )

    await sent(6, 0.15)
    assert got == [b"x" * 66]
    with pytest.raises(Problem) as stopped:
        await sent(2, 0)
    assert stopped.value.status_code == 408


async def test_more_large_bodies_than_fit_are_503(client: httpx.AsyncClient) -> None:
    """Those that have begun to be large hold a place until they are answered, whatever comes."""
    arrived, gate = asyncio.Semaphore(0), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        whole = paste(20_000)
        yield whole[:15_000]
        arrived.release()
        await gate.wait()
        yield whole[15_000:]

    first = [
        asyncio.create_task(client.post("/v1/pastes", content=slow(), headers=JSON))
        for _ in range(2)
    ]
    for _ in first:
        await arrived.acquire()
    refused = await client.post("/v1/pastes", content=chunks(paste(20_000)), headers=JSON)
    assert "large bodies" in problem_of(refused, 503)["detail"]
    small = await client.post("/v1/pastes", content=chunks(b"[]"), headers=JSON)
    problem_of(small, 422)
    gate.set()
    for task in first:
        assert "large bodies" not in problem_of(await task, 503)["detail"]
    later = await client.post("/v1/pastes", content=chunks(paste(20_000)), headers=JSON)
    assert "large bodies" not in problem_of(later, 503)["detail"]


class TestRate:
    def test_a_burst_then_a_steady_rate(self) -> None:
        now = 100.0
        rate = Rate(per_s=10, burst=5, clock=lambda: now)
        for _ in range(5):
            rate.take("a")

        with pytest.raises(Problem) as refused:
            rate.take("a")

        assert refused.value.status_code == 429
        assert refused.value.headers == {"Retry-After": "1"}
        rate.take("b")  # others are not affected
        now += 0.1
        rate.take("a")
        with pytest.raises(Problem):
            rate.take("a")

    def test_what_is_refused_costs_nothing(self) -> None:
        now = 0.0
        rate = Rate(per_s=1, burst=10, clock=lambda: now)
        for _ in range(100):
            with pytest.raises(Problem):
                rate.take("a", 11)

        rate.take("a", 10)

    def test_at_most_burst_plus_rate_in_any_span(self) -> None:
        now = 0.0
        rate = Rate(per_s=10, burst=10, clock=lambda: now)
        taken = []
        for tick in range(10_000):
            now = tick / 100
            try:
                rate.take("a")
                taken.append(now)
            except Problem:
                continue

        for start in (0.0, 3.3, 59.0):
            assert sum(start <= t < start + 2 for t in taken) <= 10 + 20 + 1
        assert len(taken) >= 1_000

    def test_subjects_are_bounded(self) -> None:
        rate = Rate(per_s=1, burst=1, subjects_max=3, clock=lambda: 0.0)
        for subject in "abcd":
            rate.take(subject)

        with pytest.raises(Problem):
            rate.take("d")
        rate.take("a")


class TestRateOfARequest:
    @pytest.fixture
    def limits(self) -> ApiLimits:
        return ApiLimits(rate_per_s=1, rate_burst=10)

    async def test_a_batch_costs_its_events(self, app: FastAPI, issuer: DevIssuer) -> None:
        events = [{**CLICK, "click_id": f"c{i}"} for i in range(8)]
        async with client_of(app) as client:
            client.headers["Authorization"] = f"Bearer {issuer.token('x', ['events:write'], 60)}"
            first = await client.post("/v1/ads/events:batch", json={"events": events})
            second = await client.post("/v1/ads/events:batch", json={"events": events})

        assert first.status_code == 202
        problem_of(second, 429)
        assert int(second.headers["retry-after"]) >= 1
