"""The routes over the real rules: what they take, refuse and show. Nothing leaves the process."""

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
from tests.api.conftest import AUDIENCE, ISSUER, client_of, problem_of
from tests.webhooks.world import World

BASE = "/v1/webhooks/t"
URL = "https://hook.example.org/in"
SECRET, OTHER = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_YW5vdGhlciBzZWNyZXQsIDI0IGJ5dGVz"


class Scene:
    """Client and world."""

    def __init__(self, client: httpx.AsyncClient, world: World, issuer: DevIssuer) -> None:
        self.client, self.world, self._issuer = client, world, issuer

    def may(self, *scopes: str) -> None:
        """From now on the client has these scopes."""
        token = self._issuer.token("tester", list(scopes), 600)
        self.client.headers["Authorization"] = f"Bearer {token}"

    async def post(self, path: str, body: Any = None, key: str = "") -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return await self.client.post(f"{BASE}{path}", json=body, headers=headers)

    async def get(self, path: str, **params: Any) -> Any:
        answer = await self.client.get(f"{BASE}{path}", params=params)
        assert answer.status_code == 200, answer.text
        assert "Headrace-Applied" in answer.headers
        return answer.json()

    async def join(self, id_: str = "e1", url: str = URL, **more: Any) -> None:
        self.world.hooks.setdefault(url, lambda *_: 200)
        made = await self.post("/endpoints", {"id": id_, "url": url, "secret": SECRET, **more})
        assert made.status_code == 201, made.text
        assert made.json()["id"] == id_

    async def publish(self, n: int, type_: str = "a.b", **more: Any) -> httpx.Response:
        body = {"eventType": type_, "payload": {"n": n}, **more}
        answer = await self.post("/messages", body)
        assert answer.status_code == 202, answer.text
        return answer


@pytest.fixture
async def scene(tmp_path: Any) -> AsyncIterator[Scene]:
    issuer, world = DevIssuer(tmp_path, ISSUER, AUDIENCE), World()
    issuer.key()
    services = Services(
        producer=world,
        verifier=Verifier(KeyFile(tmp_path / "jwks.json"), ISSUER, AUDIENCE),
        replies=world.replies,
        readers={"webhooks": world.reader},
    )

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener)
    app.state.services = services
    async with client_of(app) as client:
        made = Scene(client, world, issuer)
        made.may(READ, WRITE, MODERATE)
        yield made


async def test_an_endpoint_from_its_making_to_its_end(scene: Scene) -> None:
    await scene.join(eventTypes=["a.*", "a.*", "b"], ordered=True, ratePerS=5, description="d")
    shown = await scene.get("/endpoints/e1")
    told = {"url": URL, "event_types": ["a.*", "b"], "ordered": True, "rate_per_s": 5}
    assert shown.items() >= {**told, "disabled": "", "revision": 1, "description": "d"}.items()
    assert SECRET not in str(shown), "secrets have a route of their own"
    problem_of(await scene.post("/endpoints", {"id": "e1", "url": URL}), 409)
    moved = await scene.client.put(f"{BASE}/endpoints/e1", json={"url": URL + "2"})
    assert (moved.status_code, moved.json()["revision"]) == (200, 2)
    assert (await scene.get("/endpoints/e1"))["url"] == URL + "2"
    for verb, disabled in (("disable", "by_hand"), ("enable", "")):
        assert (await scene.post(f"/endpoints/e1/{verb}")).status_code == 200
        assert (await scene.get("/endpoints/e1"))["disabled"] == disabled
    await scene.join("e2")
    assert [one["id"] for one in await scene.get("/endpoints")] == ["e1", "e2"]
    assert (await scene.client.delete(f"{BASE}/endpoints/e1")).status_code == 200
    assert [one["id"] for one in await scene.get("/endpoints")] == ["e2"]
    problem_of(await scene.client.get(f"{BASE}/endpoints/e1"), 404)
    problem_of(await scene.client.put(f"{BASE}/endpoints/e1", json={"url": URL}), 404)


async def test_a_secret_is_made_rotated_and_shown_to_few(scene: Scene) -> None:
    made = await scene.post("/endpoints", {"url": URL})
    id_ = made.json()["id"]
    (first,) = await scene.get(f"/endpoints/{id_}/secrets")
    assert first["secret"].startswith("whsec_")
    assert first["expires_ms"] is None
    body = {"secret": OTHER, "overlapMs": 60_000}
    assert (await scene.post(f"/endpoints/{id_}/rotate-secret", body)).status_code == 200
    new, old = await scene.get(f"/endpoints/{id_}/secrets")
    assert (new["secret"], new["expires_ms"], old["secret"]) == (OTHER, None, first["secret"])
    assert old["expires_ms"] == scene.world.now_ms + 60_000
    problem_of(await scene.post(f"/endpoints/{id_}/rotate-secret", body), 422)
    assert (await scene.post(f"/endpoints/{id_}/rotate-secret", {})).status_code == 200
    scene.may(READ, WRITE)
    problem_of(await scene.client.get(f"{BASE}/endpoints/{id_}/secrets"), 403)
    scene.may(READ)
    problem_of(await scene.post("/endpoints", {"url": URL}), 403)


@pytest.mark.parametrize(
    "change",
    [
        {"url": "ftp://a.example/"}, {"url": "https://"}, {"url": "a.example"},
        {"url": "https://u:p@a.example/"}, {"url": "https://a.example:0/"},
        {"url": "https://a.example:99999/"}, {"url": "https://[::1/"},
        {"url": "https://a.example/" + "x" * 2_048}, {"url": "https://a\x00b.example/"},
        {"secret": "whsec_c2hvcnQ="}, {"secret": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        {"secret": "whsec_!"}, {"eventTypes": ["a..b"]}, {"eventTypes": ["*.a"]},
        {"ratePerS": -1}, {"ratePerS": 1.5}, {"id": "a/b"}, {"id": ""}, {"event_types": ["a"]},
    ],
)  # fmt: skip
async def test_an_endpoint_that_cannot_be_is_refused(scene: Scene, change: Any) -> None:
    problem_of(await scene.post("/endpoints", {"url": URL} | change), 422)
    assert scene.world.events == []


async def test_a_message_is_taken_once_delivered_and_every_try_is_shown(scene: Scene) -> None:
    scene.world.hooks[URL] = lambda *_: 503
    await scene.join()
    body = {"eventType": "a.b", "payload": {"ü": 1.5}, "orderKey": "k"}
    first = await scene.post("/messages", body, "key")
    again = await scene.post("/messages", body, "key")
    assert (first.status_code, again.content) == (202, first.content)
    assert "Headrace-Position" in first.headers
    assert again.headers["Idempotent-Replay"] == "true"
    problem_of(await scene.post("/messages", body | {"payload": {}}, "key"), 422)
    problem_of(await scene.post("/messages", body, "k" * 256), 400)
    assert first.json().items() >= {"sequence": 0, "deliveries": 1}.items()
    id_ = first.json()["id"]
    await scene.world.settle()
    page = await scene.get("/endpoints/e1/deliveries")
    assert [(d["status"], d["http_status"]) for d in page["items"]] == [("retrying", 503)]
    scene.world.hooks[URL] = lambda *_: 204
    await scene.world.advance(60_000)
    shown = await scene.get(f"/messages/{id_}")
    assert shown["payload"] == {"ü": 1.5}
    tried = [(one["attempt"], one["status"], one["http_status"]) for one in shown["attempts"]]
    assert tried == [(1, "failed", 503), (2, "delivered", 204)]
    assert scene.world.ids(URL) == [id_, id_]
    problem_of(await scene.client.get(f"{BASE}/messages/nobody"), 404)
    problem_of(await scene.client.get(f"/v1/webhooks/other/messages/{id_}"), 404)


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"eventType": "a b"}, 422), ({"eventType": ""}, 422), ({"eventType": "a.*"}, 422),
        ({"payload": [1]}, 422), ({"payload": None}, 422), ({"orderKey": "x" * 2_000}, 422),
        ({"order_key": "x"}, 422), ({"payload": {"x": "y" * 262_144}}, 413),
    ],
)  # fmt: skip
async def test_a_message_that_cannot_be_is_refused(scene: Scene, change: Any, status: int) -> None:
    body = {"eventType": "a.b", "payload": {}} | change
    problem_of(await scene.post("/messages", body), status)
    assert scene.world.events == []


async def test_messages_are_pulled_by_number_without_gaps_whoever_is_away(scene: Scene) -> None:
    ids = [(await scene.publish(n)).json()["id"] for n in range(5)]
    first = await scene.get("/messages", limit=3)
    assert [one["id"] for one in first["items"]] == ids[:3]
    rest = await scene.get("/messages", cursor=first["next"], limit=3)
    assert [one["sequence"] for one in rest["items"]] == [3, 4]
    nothing = await scene.get("/messages", cursor=rest["next"])
    assert nothing == {"items": [], "next": 5}
    ids.append((await scene.publish(5)).json()["id"])
    late = await scene.get("/messages", cursor=nothing["next"])
    assert [one["id"] for one in late["items"]] == ids[5:]
    problem_of(await scene.client.get(f"{BASE}/messages?limit=501"), 422)
    problem_of(await scene.client.get(f"{BASE}/messages?cursor=-1"), 422)


async def test_deliveries_are_paged_from_the_newest(scene: Scene) -> None:
    await scene.join(eventTypes=["a.*"])
    for n in range(7):
        await scene.publish(n, "a.b" if n != 3 else "c")
    await scene.world.settle()
    found, cursor = [], None
    while True:
        params = {} if cursor is None else {"cursor": cursor}
        page = await scene.get("/endpoints/e1/deliveries", limit=2, **params)
        found += [one["sequence"] for one in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert found == [6, 5, 4, 2, 1, 0]


async def test_one_is_sent_again_and_what_was_missed_is_made_up_for(scene: Scene) -> None:
    await scene.join()
    sent = (await scene.publish(0)).json()["id"]
    await scene.world.settle()
    again = await scene.post(f"/messages/{sent}/endpoints/e1/resend", key="again")
    repeat = await scene.post(f"/messages/{sent}/endpoints/e1/resend", key="again")
    assert (again.status_code, again.json()["deliveries"]) == (202, 1)
    assert repeat.headers["Idempotent-Replay"] == "true"
    await scene.world.settle()
    assert scene.world.ids(URL) == [sent, sent]
    await scene.post("/endpoints/e1/disable")
    problem_of(await scene.post(f"/messages/{sent}/endpoints/e1/resend"), 409)
    problem_of(await scene.post("/endpoints/e1/recover", {"since": 0}), 409)
    missed = [(await scene.publish(n)).json()["id"] for n in (1, 2)]
    await scene.post("/endpoints/e1/enable")
    assert (await scene.post("/endpoints/e1/recover", {"since": 0})).status_code == 202
    await scene.world.settle()
    assert scene.world.ids(URL) == [sent, sent, *missed]
    for path in ("/messages/nobody/endpoints/e1/resend", f"/messages/{sent}/endpoints/x/resend"):
        problem_of(await scene.post(path), 404)
    problem_of(await scene.post("/endpoints/nobody/recover", {"since": 0}), 404)
    problem_of(await scene.post("/endpoints/e1/recover", {"since": "yesterday"}), 422)
