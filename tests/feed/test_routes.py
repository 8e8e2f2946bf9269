"""What a read says to the log: that somebody is there again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.auth import READ, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.producer import Saturated
from schemas.feed.events import COMMANDS, OPEN_FEED, FeedOpened
from streams.runtime.kafka import partition_of
from tests.feed.few import Village
from tests.feed.people import HOUR_MS, NOON_MS, follow, post

pytestmark = pytest.mark.usefixtures("few")
LATE_MS = NOON_MS + 72 * HOUR_MS


class Log:
    """A producer that keeps what it is given, or has no room."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.full = False

    async def send(self, topic: str, record: str, row: Any, headers: Any) -> None:
        assert (topic, record) == (COMMANDS.name, OPEN_FEED.name)
        if self.full:
            raise Saturated(1)
        self.sent.append(row)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def village() -> Village:
    """Where `u` follows two authors, who posted on long after."""
    village = Village()
    village.tell([follow("u", "a"), follow("u", "b"), post("a", "1"), post("b", "2")])
    village.tell([post("a", "3", LATE_MS), post("b", "4", LATE_MS + 1)])
    return village


@pytest.fixture
async def client(log: Log, village: Village, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    keys = DevIssuer(tmp_path, "headrace-test", "headrace")
    token = keys.token("u", [READ], 600)
    verifier = Verifier(KeyFile(keys.folder / "jwks.json"), "headrace-test", "headrace")
    services = Services(producer=log, verifier=verifier, readers={"feed": village.reader})  # type: ignore[arg-type]

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener)
    app.state.services = services
    transport = httpx.ASGITransport(app)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://t", headers=headers
    ) as opened:
        yield opened


async def test_a_read_after_long_tells_each_partition_that_does_not_know(
    client: httpx.AsyncClient, log: Log, village: Village
) -> None:
    page = (await client.get("/v1/feed", params={"limit": 3})).json()
    assert [one["postId"] for one in page["posts"]] == ["4", "3", "2"]
    assert {row.user for row in log.sent} == {"u"}
    authors = {partition_of(author, COMMANDS.partitions) for author in ("a", "b")}
    assert {partition_of(row.author, COMMANDS.partitions) for row in log.sent} == authors

    told = len(log.sent)
    rest = await client.get("/v1/feed", params={"limit": 3, "cursor": page["next"]})
    assert [one["postId"] for one in rest.json()["posts"]] == ["1"]
    assert len(log.sent) == told
    village.tell([FeedOpened(row.author, "u", LATE_MS + 2) for row in log.sent])
    await client.get("/v1/feed")
    assert len(log.sent) == told


async def test_a_log_without_room_does_not_keep_anybody_from_reading(
    client: httpx.AsyncClient, log: Log
) -> None:
    log.full = True
    answer = await client.get("/v1/feed")
    assert answer.status_code == 200
    assert len(answer.json()["posts"]) == 4
