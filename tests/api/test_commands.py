"""Commands over HTTP: the verdict, its repeat, its absence, and who may see it."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest
import redis.asyncio
from fastapi import FastAPI, Response

from api.auth import READ, WRITE, requires
from api.commands import Asked, AskedDep, KeyedDep, ask
from api.issuer import DevIssuer
from api.services import Services, ServicesDep
from connectors.producer import Undelivered
from connectors.replies import RedisReplies, Waiters
from schemas.leaderboard import events
from streams.runtime.decider import wire
from streams.runtime.decider.replies import ANSWER_TTL_S, Answer, answer_key, encode
from streams.runtime.decider.rules import Envelope
from streams.runtime.settings import Settings
from tests.api.conftest import MemoryProducer, client_of, problem_of

SCORE = {"score_id": "s", "board": "b", "player_id": "p", "points": 1, "event_time": 1}


class HeardReplies(Waiters):
    """Verdicts that a test tells, at once or never."""

    address = "here"

    def __init__(self) -> None:
        super().__init__()
        self.keeps: dict[str, Answer] = {}

    async def kept(self, correlation_id: str) -> Answer | None:
        return self.keeps.get(correlation_id)


class DecidingProducer(MemoryProducer):
    """A producer behind which a decider answers what `decide` says."""

    replies: HeardReplies
    decide: Callable[[Envelope, int], Answer | None]

    async def send_many(self, topic: str, rows: Any, headers: Any = ()) -> Any:
        sent = await super().send_many(topic, rows, headers)
        answer = self.decide(wire.envelope_of(headers, "?"), sent[0].offset)
        if answer is not None:
            self.replies.heard(answer)
        return sent


def accept(envelope: Envelope, offset: int, **more: Any) -> Answer:
    told = Answer(
        correlation_id=envelope.correlation_id,
        status=201,
        body=b'{"id":"x"}',
        topic="leaderboard.events",
        partition=2,
        offset=7,
        source_offset=offset,
        subject=envelope.subject,
    )
    return msgspec.structs.replace(told, **more)


@pytest.fixture
def producer() -> DecidingProducer:
    made = DecidingProducer()
    made.replies = HeardReplies()
    made.decide = accept
    return made


@pytest.fixture
def app(app: FastAPI, services: Services, producer: DecidingProducer) -> FastAPI:
    app.state.services = replace(services, replies=producer.replies)

    @app.post("/v1/things", dependencies=[requires(WRITE)])
    async def make(body: dict[str, Any], asked: AskedDep, services: ServicesDep) -> Response:
        row = SCORE | {"player_id": asked.new_id("thing")}
        return await ask(services, asked, events.SCORES, "ScoreSubmitted", row)

    @app.post("/v1/keyed", dependencies=[requires(WRITE)])
    async def keyed(asked: KeyedDep) -> dict[str, str]:
        return {"key": asked.key}

    return app


async def test_the_verdict_is_the_answer(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/things", json={})
    assert (answer.status_code, answer.json()) == (201, {"id": "x"})
    assert answer.headers["headrace-position"] == "leaderboard.events/2/7"
    assert "idempotent-replay" not in answer.headers


async def test_the_command_carries_who_asks_and_what(
    client: httpx.AsyncClient, producer: DecidingProducer
) -> None:
    await client.post("/v1/things", json={"a": 1}, headers={"Idempotency-Key": "k-1"})
    envelope = wire.envelope_of(producer.headers[0], "?")
    assert envelope.subject == "tester"
    assert envelope.reply_to == "here"
    player = producer.sent[0][2]["player_id"]
    assert events.SCORES.key == "player_id"
    assert envelope.idempotency_key == f"tester\n{player}\nk-1"
    assert re.fullmatch("[0-9a-f]{32}", envelope.fingerprint)
    assert uuid.UUID(envelope.correlation_id).version == 7


async def test_same_key_same_thing_other_body_other_fingerprint(
    client: httpx.AsyncClient, producer: DecidingProducer
) -> None:
    for body in ({"a": 1}, {"a": 1}, {"a": 2}):
        await client.post("/v1/things", json=body, headers={"Idempotency-Key": "k-1"})
    await client.post("/v1/things", json={"a": 1}, headers={"Idempotency-Key": "k-2"})
    await client.post("/v1/things", json={"a": 1})
    await client.post("/v1/things", json={"a": 1})
    ids = [row["player_id"] for _, _, row in producer.sent]
    prints = [wire.envelope_of(h, "?").fingerprint for h in producer.headers]
    assert ids[0] == ids[1] == ids[2]
    assert len(set(ids)) == 4
    assert prints[0] == prints[1] == prints[3] != prints[2]


async def test_two_clients_never_share_a_key(
    app: FastAPI, producer: DecidingProducer, issuer: DevIssuer
) -> None:
    for name in ("ann", "bob"):
        async with client_of(app) as client:
            token = issuer.token(name, [WRITE], 60)
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k"}
            await client.post("/v1/things", json={}, headers=headers)
    first, second = (row["player_id"] for _, _, row in producer.sent)
    assert first != second


async def test_a_repeat_says_so(client: httpx.AsyncClient, producer: DecidingProducer) -> None:
    producer.decide = lambda e, o: accept(e, o, replay=True)
    answer = await client.post("/v1/things", json={}, headers={"Idempotency-Key": "k"})
    assert answer.headers["idempotent-replay"] == "true"
    assert answer.status_code == 201


async def test_a_refusal_is_a_problem(
    client: httpx.AsyncClient, producer: DecidingProducer
) -> None:
    body = json.dumps({"code": "key_reused", "detail": "the key was used for something else"})
    producer.decide = lambda e, o: accept(e, o, status=422, body=body.encode())
    answer = await client.post("/v1/things", json={})
    document = problem_of(answer, 422)
    assert document["type"] == "urn:headrace:problem:key-reused"
    assert document["detail"] == "the key was used for something else"
    assert answer.headers["headrace-position"] == "leaderboard.events/2/7"


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async", "handling=strict, respond-async"])
async def test_past_the_deadline_it_is_pending_and_can_be_fetched(
    client: httpx.AsyncClient, producer: DecidingProducer, prefer: str
) -> None:
    producer.decide = lambda e, o: None
    answer = await client.post("/v1/things", json={}, headers={"Prefer": prefer})
    assert answer.status_code == 202
    assert re.fullmatch(r"leaderboard\.scores/\d/0", answer.headers["headrace-position"])
    where = answer.headers["location"]
    pending = await client.get(where)
    assert (pending.status_code, pending.headers["retry-after"]) == (202, "1")
    envelope = wire.envelope_of(producer.headers[0], "?")
    producer.replies.keeps[envelope.correlation_id] = accept(envelope, 0)
    found = await client.get(where)
    assert (found.status_code, found.json()) == (201, {"id": "x"})


async def test_a_verdict_is_shown_to_its_sender_only(
    app: FastAPI, producer: DecidingProducer, issuer: DevIssuer
) -> None:
    which = str(uuid.uuid4())
    envelope = Envelope(which, subject="ann")
    producer.replies.keeps[which] = accept(envelope, 0)
    async with client_of(app) as client:
        for name, status in (("ann", 201), ("bob", 404)):
            token = issuer.token(name, [READ], 60)
            headers = {"Authorization": f"Bearer {token}"}
            answer = await client.get(f"/v1/commands/{which}", headers=headers)
            assert answer.status_code == status
        answer = await client.get("/v1/commands/not-a-uuid", headers=headers)
        problem_of(answer, 422)


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a b", "\u00e9".encode()])
async def test_a_key_that_cannot_be_one(client: httpx.AsyncClient, key: Any) -> None:
    answer = await client.post("/v1/things", json={}, headers=[(b"Idempotency-Key", key)])
    assert problem_of(answer, 400)["errors"][0]["parameter"] == "Idempotency-Key"


async def test_a_route_may_require_a_key(client: httpx.AsyncClient) -> None:
    problem_of(await client.post("/v1/keyed"), 400)
    answer = await client.post("/v1/keyed", headers={"Idempotency-Key": "x" * 255})
    assert answer.json() == {"key": "x" * 255}


async def test_an_unknown_outcome_is_told_as_such(
    client: httpx.AsyncClient, producer: DecidingProducer
) -> None:
    producer.fails_with = Undelivered("no broker")
    problem_of(await client.post("/v1/things", json={}), 503)
    assert not producer.replies._open


def test_ids_are_stable_per_kind() -> None:
    one = Asked("ann", "k", "f", 0, "r")
    assert one.new_id("payment") == one.new_id("payment") != one.new_id("refund")
    nameless = Asked("ann", "", "f", 0, "r")
    assert nameless.new_id("payment") != nameless.new_id("payment")


@pytest.fixture
async def store() -> AsyncIterator[Any]:
    client = redis.asyncio.Redis.from_url(Settings.read().redis.url.get_secret_value())
    yield client
    await client.aclose()


@pytest.mark.stack
async def test_verdicts_are_heard_over_redis(store: Any) -> None:
    which = str(uuid.uuid4())
    answer = accept(Envelope(which), 3)
    url = Settings.read().redis.url.get_secret_value()
    async with RedisReplies(url) as replies:
        await replies.subscribed.wait()
        with replies.expect(which) as verdict:
            await store.publish(replies.address, b"no answer at all")
            await store.publish(replies.address, encode(accept(Envelope("another"), 3)))
            for _ in range(2):  # the second finds nobody
                await store.publish(replies.address, encode(answer))
            assert await asyncio.wait_for(verdict, 10) == answer
        assert await replies.kept(which) is None
        await store.set(answer_key(which), encode(answer), ex=ANSWER_TTL_S)
        assert await replies.kept(which) == answer
        await store.delete(answer_key(which))


@pytest.mark.stack
async def test_a_lost_connection_is_made_again(store: Any) -> None:
    url = Settings.read().redis.url.get_secret_value()
    async with RedisReplies(url) as replies:
        await replies.subscribed.wait()
        ours = [c for c in await store.client_list() if c["sub"] == "1" and c["cmd"] == "subscribe"]
        assert ours
        for one in ours:
            await store.client_kill_filter(_id=one["id"])
        answer = accept(Envelope(str(uuid.uuid4())), 0)
        with replies.expect(answer.correlation_id) as verdict:
            while not verdict.done():
                await store.publish(replies.address, encode(answer))
                await asyncio.sleep(0.05)
            assert verdict.result() == answer
