"""The real server (Granian) in a process of its own, over sockets: what no in-process client can
show. Needs broker and registry with the catalogue applied.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from schemas.apply import apply
from streams.runtime import settings
from streams.runtime.settings import Settings
from tests import stack
from tests.api.conftest import CLICK

pytestmark = pytest.mark.stack

SLOW_SOCKETS = 200


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("home")
    servers = settings.home() / "stack.json"  # where this run's servers are
    if servers.is_file():
        shutil.copy(servers, made)
    return made


@pytest.fixture(scope="module")
def topics() -> None:
    """The catalogue's topics and schemas, where they are not there yet."""
    apply(Settings.read())


@pytest.fixture(scope="module")
def base(home: Path, topics: None) -> Iterator[str]:
    with served(home) as url:
        yield url


LIMITS = {"receipt_timeout_ms": 1_000, "body_bytes_max": 100_000}


@contextmanager
def served(home: Path, *options: str) -> Iterator[str]:
    with stack.served(home, *options, HEADRACE_API__LIMITS=json.dumps(LIMITS)) as server:
        yield server.url


@pytest.fixture
def headers(base: str, home: Path) -> dict[str, str]:
    api = Settings.read().api
    token = DevIssuer(home / "keys", api.issuer, api.audience).token("me", [READ, WRITE], 600)
    return {"Authorization": f"Bearer {token}"}


def test_an_event_gets_into_the_log(base: str, headers: dict[str, str]) -> None:
    first = httpx.post(f"{base}/v1/ads/events", json=CLICK, headers=headers)
    second = httpx.post(f"{base}/v1/ads/events", json=CLICK, headers=headers)

    assert first.status_code == second.status_code == 202, first.text
    places = [answer.json()["position"] for answer in (first, second)]
    assert places[0]["partition"] == places[1]["partition"]
    assert places[0]["offset"] < places[1]["offset"]


def test_a_batch_gets_into_the_log(base: str, headers: dict[str, str]) -> None:
    events = [{**CLICK, "click_id": f"c{n}", "user_id": f"u{n}"} for n in range(500)]

    answer = httpx.post(f"{base}/v1/ads/events:batch", json={"events": events}, headers=headers)

    assert answer.status_code == 202, answer.text
    assert len(answer.json()["positions"]) == 4


def test_a_body_over_the_limit_is_refused_before_it_is_all_here(
    base: str, headers: dict[str, str]
) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 200_000_000:
            sent += 10_000
            yield b" " * 10_000

    json_headers = {**headers, "Content-Type": "application/json"}
    try:
        answer = httpx.post(f"{base}/v1/ads/events", content=endless(), headers=json_headers)
        assert answer.status_code == 413
    except httpx.WriteError:
        pass  # the server closed the connection while we were still sending
    assert sent < 200_000_000


def test_the_server_survives_headers_without_end(base: str, headers: dict[str, str]) -> None:
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        client.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n")
        try:
            for _ in range(2_000):
                client.sendall(b"X-Long: " + b"x" * 1_000 + b"\r\n")
            answer = client.recv(100)
        except OSError:
            answer = b""
    assert answer == b"" or answer.split()[1] in {b"431", b"400"}
    assert httpx.get(f"{base}/livez").status_code == 200


@pytest.mark.parametrize(
    "path", ["/v1/leaderboards/%ff/top", "/v1/leaderboards/%00/top", "/%2e%2e/"]
)
def test_odd_addresses_are_no_500(base: str, headers: dict[str, str], path: str) -> None:
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        status = int(client.recv(100).split()[1])

    # 503: this server has no read model of leaderboard yet
    assert status in {400, 404, 422, 503, 200}


async def test_slow_senders_are_cut_off_and_others_do_not_wait(
    base: str, headers: dict[str, str]
) -> None:
    """200 sockets that send one byte of their body now and then: each gets 408 at the deadline,
    and events of others get through meanwhile.
    """
    host, port = base.removeprefix("http://").split(":")
    head = (
        "POST /v1/ads/events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: {headers['Authorization']}\r\nContent-Length: 1000\r\n\r\n"
    ).encode()

    async def slow() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        try:
            while not reader.at_eof():
                writer.write(b" ")
                await writer.drain()
                try:
                    async with asyncio.timeout(0.3):
                        return await reader.readline()
                except TimeoutError:
                    continue
            return b""
        except ConnectionError:
            return b""
        finally:
            writer.close()

    attack = [asyncio.create_task(slow()) for _ in range(SLOW_SOCKETS)]
    await asyncio.sleep(0.2)
    async with httpx.AsyncClient(base_url=base, headers=headers) as client:
        good = [await client.post("/v1/ads/events", json=CLICK) for _ in range(20)]
    answers = await asyncio.wait_for(asyncio.gather(*attack), 60)

    assert [answer.status_code for answer in good] == [202] * 20
    assert all(answer.split()[1:2] == [b"408"] or answer == b"" for answer in answers)
    assert any(answer.split()[1:2] == [b"408"] for answer in answers)


def test_the_log_is_json_without_tokens(base: str, home: Path, headers: dict[str, str]) -> None:
    httpx.post(f"{base}/v1/ads/events", json=CLICK, headers=headers)

    port = base.rsplit(":", 1)[1]
    text = (home / f"api-{port}.log").read_text()
    requests = [json.loads(line) for line in text.splitlines() if '"request"' in line]
    assert any(line["route"] == "/v1/ads/events" and line["status"] == 202 for line in requests)
    assert headers["Authorization"].split()[1] not in text


def test_worker_processes_share_the_port_and_are_counted_together(home: Path, topics: None) -> None:
    api = Settings.read().api
    asked = 40
    with served(home, "--workers", "2") as url:
        token = DevIssuer(home / "keys", api.issuer, api.audience).token("me", [READ], 600)
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(asked):  # each on a connection of its own
            assert httpx.get(f"{url}/info", headers=headers).status_code == 200
        counted = httpx.get(f"{url}/metrics").text
    line = next(
        one
        for one in counted.splitlines()
        if one.startswith("http_server_request_duration_seconds_count") and '"/info"' in one
    )
    assert float(line.rsplit(" ", 1)[1]) == asked
