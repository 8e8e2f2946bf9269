"""The limiter in front of routes: headers, refusals, and what happens when Redis is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter

from api import problem
from api.auth import Principal
from api.limiter import Limit, Limiter
from api.responder import Responder
from connectors.limiter.decisions import DecisionLog
from connectors.limiter.rulebook import Rulebook
from connectors.producer import Saturated
from schemas.limiter.events import RULE_REMOVED, RULE_SET
from schemas.limiter.rules import BadRule, Rule
from sinks.limiter.counters import Counters
from sinks.limiter.leases import Leases
from streams.runtime.metrics import Metrics
from streams.runtime.settings import Limiter as LimiterSettings
from streams.runtime.settings import Settings
from tests.limiter.rules import a_rule


class Kept:
    """A producer that keeps rows, or fails."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.fails_with: Exception | None = None

    async def send(self, topic: str, record_name: str, row: Any, headers: Any = ()) -> Any:
        await self.send_many(topic, [(record_name, row)], headers)

    async def send_many(self, topic: str, rows: Any, headers: Any = ()) -> Any:
        if self.fails_with is not None:
            raise self.fails_with
        self.rows += [row for _, row in rows]


class Edge:
    """An application of two routes behind the limiter."""

    def __init__(self, limiter: Limiter, client: httpx.AsyncClient, producer: Kept) -> None:
        self.limiter, self.client, self.producer = limiter, client, producer

    def rules(self, *rules: Rule) -> None:
        """These rules are in force."""
        self.limiter.book.rules = {rule.rule_id: rule for rule in rules}

    async def get(self, path: str = "/v1/things", who: str = "me") -> httpx.Response:
        """Ask as somebody."""
        return await self.client.get(path, headers={"x-who": who})


class _Known:
    """Stands in for `Authenticate`."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            who = dict(scope["headers"])[b"x-who"].decode()
            scope["state"]["principal"] = Principal(who, frozenset())
        await self._app(scope, receive, send)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Edge]:
    """An edge whose counters are at `url`."""
    producer, metrics = Kept(), Metrics(CollectorRegistry())
    counters = Counters.connect(url, 2.0)
    settings = LimiterSettings(timeout_ms=2_000)
    app = FastAPI()
    problem.install(app)
    app.get("/v1/things")(_nothing)
    app.get("/v1/limiter/rules")(_nothing)
    async with DecisionLog(producer, metrics.limits.dropped, linger_s=0.0) as decisions:
        limiter = Limiter(Rulebook(), Leases(counters), decisions, settings, metrics.limits.decided)
        app.add_middleware(Limit, limiter=lambda: limiter)
        app.add_middleware(_Known)
        app.add_middleware(Responder, durations=metrics.api.request)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield Edge(limiter, client, producer)
    await counters.close()


async def _nothing() -> dict[str, str]:
    return {}


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    async with opened(Settings.read().redis.url.get_secret_value()) as edge:
        yield edge


@pytest.fixture
async def cut_off() -> AsyncIterator[Edge]:
    """Nobody listens on port 9 (discard)."""
    async with opened("redis://127.0.0.1:9/0") as edge:
        yield edge


async def test_without_rules_nothing_is_asked(cut_off: Edge) -> None:
    answer = await cut_off.get()
    assert answer.status_code == 200
    assert "ratelimit" not in answer.headers


@pytest.mark.stack
async def test_429_says_when_to_come_back(edge: Edge) -> None:
    rule = a_rule(limit=2, window_ms=60_000, route="/v1/things")
    edge.rules(rule)
    first, _, third = [await edge.get() for _ in range(3)]
    assert first.headers["ratelimit-policy"] == f'"{rule.rule_id}";q=2;w=60'
    assert first.headers["ratelimit"].startswith(f'"{rule.rule_id}";r=1;t=')
    assert (first.headers["x-ratelimit-limit"], first.headers["x-ratelimit-remaining"]) == (
        "2",
        "1",
    )
    assert third.status_code == 429
    assert third.json()["type"] == "urn:headrace:problem:rate-limited"
    assert rule.rule_id in third.json()["detail"]
    assert 0 < int(third.headers["retry-after"]) <= 66
    assert third.headers["x-ratelimit-remaining"] == "0"
    assert (await edge.get(who="you")).status_code == 200


@pytest.mark.stack
async def test_weights_and_several_rules(edge: Edge) -> None:
    whole = a_rule(limit=5, per=())
    heavy = a_rule(limit=6, weights={"/v1/things": 3}, window_ms=60_000)
    edge.rules(whole, heavy)
    answers = [(await edge.get()).status_code for _ in range(3)]
    answers += [(await edge.get(who="you")).status_code for _ in range(2)]
    answers += [(await edge.get(who="they")).status_code for _ in range(2)]
    assert answers == [200, 200, 429, 200, 200, 200, 429]


@pytest.mark.stack
async def test_the_operator_is_never_locked_out(edge: Edge) -> None:
    edge.rules(a_rule(limit=1))
    statuses = [(await edge.get("/v1/limiter/rules")).status_code for _ in range(3)]
    assert statuses == [200, 200, 200]


@pytest.mark.stack
async def test_a_shadow_refuses_nothing_and_tells_nobody(edge: Edge) -> None:
    edge.rules(a_rule(limit=1, mode="SHADOW"))
    answers = [await edge.get() for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert all("ratelimit" not in answer.headers for answer in answers)
    await _until(lambda: len(edge.producer.rows) == 3)
    told = [row["verdicts"][0]["admitted"] for row in edge.producer.rows]
    assert told == [True, False, False]


async def test_redis_away_open_lets_through(cut_off: Edge) -> None:
    cut_off.rules(a_rule(limit=1, when_down="OPEN"))
    assert [(await cut_off.get()).status_code for _ in range(5)] == [200] * 5
    await _until(lambda: len(cut_off.producer.rows) == 5)
    assert all(row["degraded"] and not row["verdicts"] for row in cut_off.producer.rows)


async def test_redis_away_closed_refuses(cut_off: Edge) -> None:
    cut_off.rules(
        a_rule(route="/v1/things", when_down="CLOSED"), a_rule(route="/v1/things"), a_rule()
    )
    answer = await cut_off.get()
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:headrace:problem:limiter-away"
    assert answer.headers["retry-after"] == "1"


async def test_a_breaker_spares_counters_that_are_away(cut_off: Edge) -> None:
    calls = 0
    take = cut_off.limiter._counters.take

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await take(*args)

    cut_off.limiter._counters.take = counted  # type: ignore[method-assign]
    cut_off.rules(a_rule())
    for _ in range(20):
        await cut_off.get()
    assert calls == 3


@pytest.mark.parametrize("reason", ["Saturated", "queue full"])
async def test_what_is_not_logged_is_counted(reason: str) -> None:
    dropped = Counter("dropped", "x", ("reason",), registry=CollectorRegistry())
    producer = Kept()
    producer.fails_with = Saturated(1)
    queue_max = 1 if reason == "queue full" else 100
    async with DecisionLog(producer, dropped, queue_max=queue_max, linger_s=0.0) as decisions:
        for n in range(10):
            decisions.add({"request_id": str(n)})
    total = {
        s.labels["reason"]: s.value for s in dropped.collect()[0].samples if "_total" in s.name
    }
    assert sum(total.values()) == 10
    assert total[reason] > 0


def test_the_newest_record_is_the_rule() -> None:
    book, rule = Rulebook(), a_rule(weights={"/v1/a": 2})
    book.fold(RULE_SET.fullname, rule.row())
    assert book.rules == {rule.rule_id: rule}
    book.fold(RULE_SET.fullname, {**rule.row(), "limit": 0})
    assert book.unreadable == 1
    assert book.rules == {rule.rule_id: rule}
    book.fold(RULE_REMOVED.fullname, {"rule_id": rule.rule_id})
    assert not book.rules


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("limit", {"limit": 0}),
        ("slots", {"slots": 7}),
        ("burst", {"burst": 5}),
        ("burst", {"algorithm": "TOKEN_BUCKET", "burst": 2**40, "window_ms": 86_400_000}),
        ("split", {"split": 65}),
        ("route", {"route": "things"}),
        ("weights", {"weights": {"/v1/a": 101}}),
        ("per", {"per": ("CLIENT", "CLIENT")}),
    ],
)
def test_a_rule_that_makes_no_sense_says_why(field: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadRule) as found:
        a_rule(**wrong)
    assert found.value.field == field


async def _until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not done():  # noqa: ASYNC110 - what is awaited tells nobody
            await asyncio.sleep(0.01)
