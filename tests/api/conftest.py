"""The application in-process: real routes and middlewares, a producer that keeps rows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI

from api.app import create_app
from api.auth import MODERATE, READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.encode import Encoder
from connectors.producer import Headers, RecordMetadata
from schemas import catalog
from sinks.ads.history import Adjustment, Audit
from sinks.ads.windows import AdTotals, CampaignTotals, Minute, Totals
from sinks.leaderboard import Board, Percentile, Standing
from streams.runtime.kafka import partition_of
from streams.runtime.settings import ApiLimits
from tests.telemetry import fakes as telemetry

ISSUER, AUDIENCE = "headrace-test", "headrace"


@dataclass
class MemoryProducer:
    """Encodes as the real one does, and keeps what it was given."""

    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    fails_with: Exception | None = None

    def __post_init__(self) -> None:
        self._encoders = {
            topic.name: Encoder(topic, {r.fullname: 1 for r in topic.records})
            for topic in catalog.topics().values()
        }
        self._next: dict[tuple[str, int], int] = {}

    async def send(
        self, topic: str, record_name: str, row: Any, headers: Headers = ()
    ) -> RecordMetadata:
        return (await self.send_many(topic, [(record_name, row)], headers))[0]

    async def send_many(
        self, topic: str, rows: Sequence[tuple[str, Any]], headers: Headers = ()
    ) -> list[RecordMetadata]:
        if self.fails_with is not None:
            raise self.fails_with
        encoder = self._encoders[topic]
        keys = [encoder.encode(name, row)[0] for name, row in rows]
        self.headers += [headers] * len(rows)
        self.sent += [(topic, name, row) for name, row in rows]
        return [self._place(topic, key.decode()) for key in keys]

    def _place(self, topic: str, key: str) -> RecordMetadata:
        partition = partition_of(key, self._encoders[topic].topic.partitions)
        offset = self._next.get((topic, partition), 0)
        self._next[topic, partition] = offset + 1
        return RecordMetadata(topic, partition, offset)


@dataclass
class FakeReads:
    """Readers of both systems, as far folded as a test says."""

    positions: dict[tuple[str, int], int] = field(default_factory=dict)
    looks: int = 0
    asked: list[Any] = field(default_factory=list)
    advance: Callable[[int], Mapping[tuple[str, int], int]] | None = None
    fails_with: Exception | None = None

    async def applied(self) -> Mapping[tuple[str, int], int]:
        self.looks += 1
        if self.fails_with is not None:
            raise self.fails_with
        return self.positions if self.advance is None else self.advance(self.looks)

    async def minutes(self, campaign_id: str, from_ms: int, to_ms: int) -> Sequence[Minute]:
        self.asked.append((campaign_id, from_ms, to_ms))
        return [Minute(1, 1, 5, start_ms=from_ms, final=True)]

    async def top_ads(
        self, campaign_id: str, by: str, n: int, from_ms: int, to_ms: int
    ) -> Sequence[AdTotals]:
        self.asked.append((campaign_id, by, n, from_ms, to_ms))
        return [AdTotals(4, 3, 5, ad_id="a")]

    async def top_campaigns(
        self, by: str, n: int, from_ms: int, to_ms: int
    ) -> Sequence[CampaignTotals]:
        self.asked.append((by, n, from_ms, to_ms))
        return [CampaignTotals(4, 3, 5, campaign_id="c")]

    async def adjustments(self, campaign_id: str, from_ms: int, to_ms: int) -> Sequence[Adjustment]:
        self.asked.append((campaign_id, from_ms, to_ms))
        return [Adjustment(1, 0, 0, start_ms=from_ms)]

    async def totals(self, from_ms: int, to_ms: int) -> Audit:
        self.asked.append((from_ms, to_ms))
        return Audit(Totals(2, 1, 5), Totals(2, 1, 5), Totals(0, 0, 0))

    async def top(self, board: Board, k: int) -> Sequence[Standing]:
        self.asked.append((board, k))
        return [Standing(rank=1, player_id="p", score=9, reached_ms=1)]

    async def rank(self, board: Board, player_id: str) -> Standing | None:
        self.asked.append((board, player_id))
        found = Standing(rank=1, player_id=player_id, score=9, reached_ms=1)
        return found if player_id == "p" else None

    async def around(self, board: Board, player_id: str, span: int) -> Sequence[Standing]:
        return [s for s in [await self.rank(board, player_id)] if s is not None]

    async def count(self, board: Board) -> int:
        self.asked.append(board)
        return 4

    async def percentile(self, board: Board, player_id: str) -> Percentile | None:
        found = Percentile(player_id=player_id, rank=1, players=4, percentile=100.0)
        return found if player_id == "p" else None


@pytest.fixture(scope="session", autouse=True)
def plain_log() -> Iterator[None]:
    """As in production: no source lines and no local variables in tracebacks (and no seconds to
    render them).
    """
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    )
    yield
    structlog.reset_defaults()


@pytest.fixture
def limits() -> ApiLimits:
    return ApiLimits()


@pytest.fixture
def producer() -> MemoryProducer:
    return MemoryProducer()


@pytest.fixture
def reads() -> FakeReads:
    return FakeReads()


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> DevIssuer:
    issuer = DevIssuer(tmp_path_factory.mktemp("keys"), ISSUER, AUDIENCE)
    issuer.key()
    return issuer


@pytest.fixture
def services(producer: MemoryProducer, reads: FakeReads, issuer: DevIssuer) -> Services:
    keys = KeyFile(issuer.folder / "jwks.json")
    return Services(
        producer=producer,
        verifier=Verifier(keys, ISSUER, AUDIENCE),
        readers={
            **dict.fromkeys(("ads", "ads-history", "ads-audit", "leaderboard"), reads),
            **telemetry.readers(reads),
        },
        info={"version": "test"},
    )


@pytest.fixture
def app(services: Services, limits: ApiLimits, monkeypatch: pytest.MonkeyPatch) -> FastAPI:
    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    monkeypatch.setattr("api.routes.telemetry.logs.FOLLOW_FOR_S", 0.0)
    app = create_app(opener, limits)
    app.state.services = services  # the in-process client runs no lifespan
    return app


@pytest.fixture
def token(issuer: DevIssuer) -> str:
    return issuer.token("tester", [READ, WRITE, MODERATE], 600)


@pytest.fixture
async def client(app: FastAPI, token: str) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def client_of(app: FastAPI, host: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=True, client=(host, 40_000))
    return httpx.AsyncClient(transport=transport, base_url="http://test")


def problem_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer, after checking that it is a whole one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = json.loads(response.content)
    assert document["status"] == status
    assert document["instance"] == f"urn:uuid:{response.headers['x-request-id']}"
    assert document.keys() >= {"type", "title", "detail"}
    return document


CLICK: dict[str, Any] = {
    "type": "AdClicked",
    "click_id": "clk-1",
    "user_id": "u-7",
    "campaign_id": "spring",
    "ad_id": "banner",
    "event_time": "2026-01-01T00:00:01.250Z",
}
SCORE: dict[str, Any] = {"playerId": "p-9", "board": "weekly", "points": 12}
