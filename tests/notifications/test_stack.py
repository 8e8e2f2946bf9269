"""Notifications through the whole product: API, decider, lanes, providers, callbacks, timeline."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from api.routes.notifications.callbacks import providers as known_providers
from connectors.notifications.callbacks import sign
from connectors.notifications.settings import NotificationSettings
from streams import catalog
from tests import stack
from tests.notifications.shop import (
    CODE,
    LIKES,
    NEWS,
    ORDER,
    SECRET,
    Providers,
    Shop,
    providers,
)

pytestmark = [pytest.mark.stack, pytest.mark.asyncio(loop_scope="module")]

AGENTS = [one.name for one in catalog.agents(catalog.load("notifications"))]
PATIENCE_S = 90.0


class Scene(NamedTuple):
    shop: Shop
    providers: Providers


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    folder = tmp_path_factory.mktemp("worker")
    async with providers(folder) as sending:
        with stack.worker(folder, *AGENTS):
            async with stack.api(tmp_path_factory.mktemp("api")) as api:
                settings = NotificationSettings.read(folder / "notifications.toml")
                app = api.client._transport.app  # type: ignore[attr-defined]
                app.dependency_overrides[known_providers] = lambda: settings
                shop = Shop(api.client)
                shop.after = await shop.publish()
                await until(lambda: shop.get(f"/v1/notification-templates/{NEWS}"), found)
                yield Scene(shop, sending)


def found(answer: Any) -> bool:
    return answer.status_code == 200


async def until(ask: Callable[[], Awaitable[Any]], good: Callable[[Any], bool]) -> Any:
    """The first good answer."""
    until_s = time.monotonic() + PATIENCE_S
    while not good(answer := await ask()):
        assert time.monotonic() < until_s, getattr(answer, "text", answer)
        await asyncio.sleep(0.05)
    return answer


async def timeline(shop: Shop, id_: str, *wanted: str) -> dict[str, Any]:
    """The notification once it has one of the wanted statuses."""
    answer = await until(
        lambda: shop.get(f"/v1/notifications/{id_}"),
        lambda one: found(one) and one.json()["status"] in wanted,
    )
    return dict(answer.json())


async def test_a_code_is_sent_in_the_recipients_language_and_told_step_by_step(
    scene: Scene,
) -> None:
    at, sending = scene
    user = await at.join("ada", locale="de-AT")
    told = await at.send(user, CODE, {"code": "123456"})
    assert told["status"] == "released"
    one = await timeline(at, told["id"], "sent")
    (message,) = sending.of(told["id"])
    assert message["text"] == "Ihr Code lautet 123456."
    assert [step["step"] for step in one["timeline"]] == ["released", "sent"]
    assert one["preferences"]["locale"] == "de-AT"
    assert one["deliveries"][0]["provider"] == "sms-a"


async def test_a_mail_is_escaped_and_cannot_bring_headers(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("bob")
    params = {"order": "7\r\nBcc: x@example.org", "name": "<script>"}
    told = await at.send(user, ORDER, params, channels=["email"])
    await timeline(at, told["id"], "sent")
    (message,) = sending.of(told["id"])
    assert message["title"] == "Order 7 Bcc: x@example.org"
    assert "Bcc" not in message["headers"]
    assert "&lt;script&gt;" in message["html"]
    assert "<script>" in message["text"]


async def test_a_key_sends_once_in_header_and_body(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("eve")
    body = {"userId": user, "type": CODE, "params": {"code": "1"}, "idempotencyKey": "first"}
    answers = await asyncio.gather(
        *(at.client.post("/v1/notifications", json=body) for _ in range(5))
    )
    assert {answer.json()["id"] for answer in answers} == {answers[0].json()["id"]}
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 200, 202]
    other = await at.client.post("/v1/notifications", json=body | {"params": {"code": "2"}})
    assert other.status_code == 422
    keyed = {"Idempotency-Key": "k-1"}
    del body["idempotencyKey"]
    one, two = [
        await at.client.post("/v1/notifications", json=body, headers=keyed) for _ in range(2)
    ]
    assert (one.json(), two.headers["Idempotent-Replay"]) == (two.json(), "true")
    for answer in (answers[0], one):
        await timeline(at, answer.json()["id"], "sent")
        assert len(sending.of(answer.json()["id"])) == 1


async def test_what_cannot_be_rendered_is_refused_at_once(scene: Scene) -> None:
    at, _ = scene
    body = {"userId": "u", "type": CODE, "params": {}}
    answer = await at.client.post("/v1/notifications", json=body)
    assert answer.status_code == 400
    assert answer.json()["type"] == "urn:headrace:problem:template-error"
    assert "'code' is undefined" in answer.json()["detail"]
    assert (await at.client.post("/v1/notifications", json=body | {"type": "x"})).status_code == 400
    bad = {"priority": "otp", "defaultLocale": "en",
           "contents": [{"channel": "sms", "locale": "en", "text": "{{ a"}]}  # fmt: skip
    answer = await at.client.put("/v1/notification-templates/bad", json=bad)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["pointer"] == "#/contents"


async def test_opt_outs_schedules_and_cancelling(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("kim", optOuts=[{"channel": "push", "category": ORDER}])
    order = {"order": "1", "name": "Kim"}
    told = await at.send(user, ORDER, order, channels=["push"])
    one = await timeline(at, told["id"], "suppressed")
    assert one["timeline"][0]["detail"]["suppressed"] == [
        {"channel": "push", "reason": "opted_out"}
    ]
    later = (datetime.now(UTC) + timedelta(seconds=3)).isoformat()
    kept, dropped = [
        await at.send(user, ORDER, order, channels=["email"], sendAt=later) for _ in range(2)
    ]
    url = f"/v1/users/{user}/notifications/{dropped['id']}/cancel"
    assert (await at.client.post(url)).json() == {"id": dropped["id"], "status": "cancelled"}
    assert (await at.client.post(url)).status_code == 409
    await timeline(at, kept["id"], "sent")
    await timeline(at, dropped["id"], "cancelled")
    assert (len(sending.of(kept["id"])), len(sending.of(dropped["id"]))) == (1, 0)
    page = (await at.get(f"/v1/users/{user}/notifications?limit=2")).json()
    rest = (await at.get(f"/v1/users/{user}/notifications?cursor={page['next']}")).json()
    ids = [row["id"] for row in page["items"] + rest["items"]]
    assert set(ids) == {told["id"], kept["id"], dropped["id"]}
    assert len(ids) == 3


async def test_another_provider_takes_over_and_a_report_comes_back(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("lee")
    sending.sms_a.behaviour.change({"mode": "down"})
    try:
        told = await at.send(user, CODE, {"code": "1"})
        one = await timeline(at, told["id"], "sent")
    finally:
        sending.sms_a.behaviour.change({"mode": "ok"})
    assert one["deliveries"][0]["provider"] == "sms-b"
    body = json.dumps({"reference": f"{told['id']}/sms", "status": "delivered",
                       "at": int(time.time() * 1_000)}).encode()  # fmt: skip
    now_s = int(time.time())
    headers = {"webhook-id": "m", "webhook-timestamp": str(now_s)}
    good = headers | {"webhook-signature": sign(SECRET, "m", now_s, body)}
    url = "/v1/notification-callbacks/sms-b"
    for bad in (headers, good | {"webhook-id": "n"}):
        assert (await at.client.post(url, content=body, headers=bad)).status_code == 401
    assert (await at.client.post(f"{url}x", content=body, headers=good)).status_code == 401
    assert (await at.client.post(url, content=body, headers=good)).status_code == 204
    assert (await timeline(at, told["id"], "delivered"))["deliveries"][0]["status"] == "delivered"


async def test_a_dead_device_is_pruned_and_never_used_again(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("max")
    await at.put(f"/v1/users/{user}/devices/dead-{user}", {"platform": "web"})
    sending.push.behaviour.invalid = {f"dead-{user}"}
    order = {"order": "1", "name": "Max"}
    told = await at.send(user, ORDER, order, channels=["push"])
    one = await timeline(at, told["id"], "sent")
    assert sorted(d["status"] for d in one["deliveries"]) == ["invalid_address", "sent"]
    settings = await until(
        lambda: at.get(f"/v1/users/{user}/notification-settings"),
        lambda answer: len(answer.json()["devices"]) == 1,
    )
    assert settings.json()["devices"][0]["token"] == f"tok-{user}"
    sending.push.behaviour.invalid = set()
    again = await at.send(user, ORDER, order, channels=["push"])
    await timeline(at, again["id"], "sent")
    assert [m["to"] for m in sending.of(again["id"])] == [f"tok-{user}"]


async def test_a_campaign_reaches_everybody_once(scene: Scene) -> None:
    at, sending = scene
    users = [await at.join(f"c{n}") for n in range(10)]
    body = {"campaignId": f"{at.tag}-spring", "type": NEWS, "params": {"headline": "Spring"},
            "userIds": users}  # fmt: skip
    for _ in range(2):
        answer = await at.client.post("/v1/notification-campaigns", json=body)
        assert answer.status_code == 202, answer.text
    expected = {f"tok-{user}" for user in users}

    async def reached() -> list[str]:
        return [m["to"] for m in sending.push.inbox.messages if m["text"] == "Spring"]

    got = await until(reached, lambda tokens: expected <= set(tokens))
    assert sorted(token for token in got if token in expected) == sorted(expected)
    codes = await at.client.post("/v1/notification-campaigns", json=body | {"type": CODE})
    assert codes.status_code == 400


@pytest.mark.slow
async def test_a_digest_gathers_its_window_and_is_sent_once(scene: Scene) -> None:
    at, sending = scene
    user = await at.join("dot")
    begun = time.time() % 60
    if begun > 30:  # so that all of it happens in one window
        await asyncio.sleep(60 - begun)
    ids = []
    for who in ("ann", "ben", "ann"):
        told = await at.send(user, LIKES, {"who": who}, idempotencyKey=f"like-{who}")
        ids.append((told["status"], told.get("digest")))
    assert [status for status, _ in ids] == ["digested", "digested", "repeated"]
    (digest,) = {digest for _, digest in ids if digest}
    one = await timeline(at, digest, "sent")
    (message,) = sending.of(digest)
    assert message["text"] == "2 likes: ann ben "
    assert one["timeline"][0]["detail"]["digest_key"] == LIKES
