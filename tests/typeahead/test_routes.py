"""What the routes of typeahead take, refuse and show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.auth import MODERATE, READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.services import Services
from connectors.producer import RecordMetadata
from schemas.typeahead.events import BLOCKLIST
from tests.typeahead.test_suggester import Desk


class Log:
    """A producer whose records of the blocklist are read at once."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.sent: list[tuple[str, Any]] = []

    async def send(self, topic: str, record: str, row: Any) -> RecordMetadata:
        fullname = next(one.fullname for one in BLOCKLIST.records if one.name == record)
        self.desk.blocked.fold(fullname, row)
        self.desk.blocked.reached(topic, 0, len(self.sent) + 1)
        self.sent.append((record, row))
        return RecordMetadata(topic, 0, len(self.sent) - 1)


@pytest.fixture
def desk(tmp_path: Any) -> Desk:
    return Desk(tmp_path / "snapshots")


@asynccontextmanager
async def client_of(desk: Desk, folder: Any, *scopes: str) -> AsyncIterator[httpx.AsyncClient]:
    keys = DevIssuer(folder, "headrace-test", "headrace")
    token = keys.token("desk-2", list(scopes), 600)
    services = Services(
        producer=Log(desk),  # type: ignore[arg-type]
        verifier=Verifier(KeyFile(keys.folder / "jwks.json"), "headrace-test", "headrace"),
        readers={"typeahead": desk.suggester, "typeahead-blocklist": desk.blocked},
    )

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener)
    app.state.services = services
    headers = {"Authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(
        transport=transport, base_url="http://t", headers=headers
    ) as opened:
        yield opened


@pytest.fixture
async def client(desk: Desk, tmp_path: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(desk, tmp_path, READ, WRITE, MODERATE) as opened:
        yield opened


async def test_suggestions_as_the_seed_asks_for_them(desk: Desk, client: httpx.AsyncClient) -> None:
    await desk.swap({f"godot {n}": n + 1 for n in range(9)})
    answer = await client.get("/v1/suggest", params={"q": "GO", "limit": 2})
    assert answer.json() == {
        "suggestions": [
            {"text": "godot 8", "source": "popular"},
            {"text": "godot 7", "source": "popular"},
        ]
    }
    assert answer.headers["Cache-Control"] == "public, max-age=2"
    assert len((await client.get("/v1/suggest", params={"q": "g"})).json()["suggestions"]) == 5


async def test_what_is_suggested_to_one_is_kept_by_no_cache(
    desk: Desk, client: httpx.AsyncClient
) -> None:
    await desk.swap({"godot": 1})
    answer = await client.get("/v1/suggest", params={"q": "g", "user": "u"})
    assert answer.headers["Cache-Control"] == "no-store"


async def test_before_the_blocklist_is_read_the_answer_is_503(
    desk: Desk, client: httpx.AsyncClient
) -> None:
    desk.blocked.complete = False
    answer = await client.get("/v1/suggest", params={"q": "g"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"q": "x" * 101},
        {"q": "a\x00b"},
        {"q": "a", "limit": 0},
        {"q": "a", "limit": 21},
        {"q": "a", "limit": "many"},
        {"q": "a", "user": ""},
    ],
    ids=str,
)
async def test_a_wrong_question_is_told_what_is_wrong(
    client: httpx.AsyncClient, params: dict[str, Any]
) -> None:
    answer = await client.get("/v1/suggest", params=params)
    assert answer.status_code == 422
    wrong = answer.json()["errors"]
    assert [one["parameter"] for one in wrong] == [list(params or {"q": ""})[-1]]


async def test_a_phrase_is_blocked_and_unblocked(desk: Desk, client: httpx.AsyncClient) -> None:
    await desk.swap({"free money now": 2, "freedom": 1})
    sent = await client.put("/v1/typeahead/blocklist/FREE  Money", json={"reason": "a scam"})
    assert sent.status_code == 202
    position = sent.headers["Headrace-Position"]
    assert position == "typeahead.blocklist/0/0"
    after = {"Headrace-After": position}
    listed = await client.get("/v1/typeahead/blocklist", headers=after)
    assert listed.json() == [{"phrase": "free money", "reason": "a scam"}]
    shown = await client.get("/v1/suggest", params={"q": "free"}, headers=after)
    assert [one["text"] for one in shown.json()["suggestions"]] == ["freedom"]
    assert shown.headers["Headrace-Applied"].endswith(position)

    sent = await client.delete("/v1/typeahead/blocklist/Free Money")
    assert sent.status_code == 202
    assert (await client.get("/v1/typeahead/blocklist")).json() == []


@pytest.mark.parametrize(
    ("phrase", "body"),
    [("%C2%AD", {}), ("x" * 129, {}), ("gold", {"reason": 1}), ("gold", {"why": "x"})],
    ids=["invisible", "long", "no text", "unknown"],
)
async def test_a_wrong_phrase_is_refused(
    client: httpx.AsyncClient, phrase: str, body: dict[str, Any]
) -> None:
    answer = await client.put(f"/v1/typeahead/blocklist/{phrase}", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"]


async def test_only_moderators_block(desk: Desk, tmp_path: Any) -> None:
    async with client_of(desk, tmp_path, READ, WRITE) as client:
        path = "/v1/typeahead/blocklist/gold"
        assert (await client.put(path, json={})).status_code == 403
        assert (await client.delete(path)).status_code == 403


async def test_the_snapshot_says_what_it_was_built_from(
    desk: Desk, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/v1/typeahead/snapshot")).status_code == 404
    await desk.swap({"godot": 1})
    told = (await client.get("/v1/typeahead/snapshot")).json()
    assert desk.suggester.snapshot is not None
    assert told["id"] == desk.suggester.snapshot.id
    assert told["terms"] == 1
