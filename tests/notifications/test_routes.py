"""The routes of notifications without a log: what they refuse, and what they write."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.auth import MODERATE, READ, WRITE, Verifier
from api.issuer import DevIssuer
from api.keys import KeyFile
from api.routes.notifications.callbacks import providers
from api.services import Services
from connectors.notifications.callbacks import sign
from connectors.notifications.settings import NotificationSettings, ProviderSettings
from connectors.notifications.templates import version
from schemas.notifications import events as e
from sinks.notifications.reader import Delivery, Listed, Notification, Recipient, Step
from streams.runtime.settings import ApiLimits
from tests.api.conftest import AUDIENCE, ISSUER, MemoryProducer, client_of, problem_of


class Reads:
    """What the read models would say."""

    def __init__(self) -> None:
        self.found: Notification | None = None
        self.rows = [Listed(f"n-{n}", "t", "otp", 1_000 + n // 2) for n in range(7)][::-1]
        content = e.Content(channel="sms", locale="en", subject="", text="{{ code }}", html="")
        made = e.TemplatePublished("login", "", "otp", "en", [content], 0, 60_000, 1)
        self.templates = {"login": replace(made, version=version(made))}

    async def applied(self) -> Mapping[tuple[str, int], int]:
        return {}

    async def notification(self, id_: str) -> Notification | None:
        return self.found

    async def listed(self, user_id: str) -> list[Listed]:
        return self.rows

    async def recipient(self, user_id: str) -> Recipient:
        return Recipient(user_id, "", "", [], 0, None)

    async def template(self, name: str, version: str = "") -> e.TemplatePublished | None:
        return self.templates.get(name)


class Scene:
    """Client, log and read models."""

    def __init__(self, client: httpx.AsyncClient, log: MemoryProducer, reads: Reads) -> None:
        self.client, self.log, self.reads = client, log, reads

    async def report(self, status: str = "delivered", **change: str) -> httpx.Response:
        body = json.dumps({"reference": "n-1/push-0a", "status": status, "at": 5}).encode()
        now_s = int(time.time())
        headers = {
            "webhook-id": "m",
            "webhook-timestamp": str(now_s),
            "webhook-signature": sign("s", "m", now_s, body),
        } | change
        url = "/v1/notification-callbacks/push-a"
        return await self.client.post(url, content=body, headers=headers)


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    issuer, log, reads = DevIssuer(tmp_path, ISSUER, AUDIENCE), MemoryProducer(), Reads()
    issuer.key()
    services = Services(
        producer=log,
        verifier=Verifier(KeyFile(tmp_path / "jwks.json"), ISSUER, AUDIENCE),
        readers={"notifications": reads, "notifications-templates": reads},
    )

    @asynccontextmanager
    async def opener() -> AsyncIterator[Services]:
        yield services

    app = create_app(opener, ApiLimits())
    app.state.services = services
    known = ProviderSettings(name="push-a", channel="push", url="http://x", callback_secrets=("s",))
    settings = NotificationSettings(provider=(known,))
    app.dependency_overrides[providers] = lambda: settings
    async with client_of(app) as client:
        token = issuer.token("tester", [READ, WRITE, MODERATE], 600)
        client.headers["Authorization"] = f"Bearer {token}"
        client.headers["Prefer"] = "respond-async"
        yield Scene(client, log, reads)


SEND = {"userId": "u", "type": "login", "params": {"code": "1"}}


async def test_a_notification_becomes_a_command_with_what_its_template_says(scene: Scene) -> None:
    answer = await scene.client.post("/v1/notifications", json=SEND | {"idempotencyKey": "k"})
    assert answer.status_code == 202
    ((topic, name, row),) = scene.log.sent
    assert (topic, name) == (e.COMMANDS.name, "SendNotification")
    assert (row.user_id, row.priority, row.channels) == ("u", "otp", ["sms"])
    assert row.template_version == scene.reads.templates["login"].version
    assert row.idempotency_key == "tester:k", "two senders never share a key"
    assert row.expires_at - row.happened_at == 60_000


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"type": "nothing"}, 400),
        ({"params": {}}, 400),
        ({"channels": ["push"]}, 400),
        ({"params": {"code": "x" * 20_000}}, 422),
        ({"channels": []}, 422),
        ({"channels": ["fax"]}, 422),
        ({"userId": ""}, 422),
        ({"sendAt": "tomorrow"}, 422),
        ({"idempotencyKey": "a b"}, 422),
        ({"priority": "otp"}, 422),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_not_written(
    scene: Scene, change: dict[str, Any], status: int
) -> None:
    problem_of(await scene.client.post("/v1/notifications", json=SEND | change), status)
    assert not scene.log.sent


@pytest.mark.parametrize(
    "change",
    [
        {"quietHours": {"start": "24:00", "end": "07:00", "timezone": "UTC"}},
        {"quietHours": {"start": "7:00", "end": "07:00", "timezone": "UTC"}},
        {"quietHours": {"start": "22:00", "end": "07:00", "timezone": "UTC", "hold": "otp"}},
        {"optOuts": [{"channel": "fax"}]},
        {"locale": "de AT"},
    ],
)
async def test_preferences_that_cannot_be_are_refused(scene: Scene, change: Any) -> None:
    url = "/v1/users/u/notification-preferences"
    problem_of(await scene.client.put(url, json=change), 422)


@pytest.mark.parametrize(
    "contact",
    [
        {"email": "a@example.org\r\nBcc: b@example.org"},
        {"email": "a, b@example.org"},
        {"email": "<a@example.org>"},
        {"email": "nobody"},
        {"phone": "0151"},
        {"phone": "+49 151 1"},
    ],
)
async def test_addresses_that_are_none_are_refused(scene: Scene, contact: Any) -> None:
    problem_of(await scene.client.put("/v1/users/u/notification-contact", json=contact), 422)
    good = {"email": "a.b+c@example.org", "phone": "+4915112345678"}
    assert (await scene.client.put("/v1/users/u/notification-contact", json=good)).status_code < 300


async def test_a_list_is_paged_without_gap_or_repeat_even_where_times_are_equal(
    scene: Scene,
) -> None:
    seen: list[str] = []
    query = "limit=3"
    while True:
        page = (await scene.client.get(f"/v1/users/u/notifications?{query}")).json()
        seen += [row["id"] for row in page["items"]]
        if page["next"] is None:
            break
        scene.reads.rows.insert(0, Listed(f"new-{len(seen)}", "t", "otp", 9_999))
        query = f"limit=3&cursor={page['next']}"
    assert seen == [f"n-{n}" for n in range(6, -1, -1)]


async def test_a_report_is_recorded_without_a_token(scene: Scene) -> None:
    del scene.client.headers["Authorization"]
    assert (await scene.report()).status_code == 204
    ((topic, _, row),) = scene.log.sent
    assert topic == e.OUTCOMES.name
    assert (row["notification_id"], row["channel"], row["status"], row["provider"]) == (
        "n-1", "push", "delivered", "push-a",
    )  # fmt: skip
    changed = {"webhook-id": "other"}
    problem_of(await scene.report(**changed), 401)
    assert len(scene.log.sent) == 1


async def test_a_dead_device_that_is_reported_later_is_pruned_before_it_is_answered(
    scene: Scene,
) -> None:
    problem_of(await scene.report("invalid_address"), 503)
    assert not scene.log.sent, "the provider is to report again"
    delivery = {"delivery_id": "n-1/push-0a", "channel": "push", "address": "tok"}
    scene.reads.found = Notification(
        *(
            "n-1",
            "u",
            "sent",
            "t",
            "otp",
            0,
            None,
            [Delivery("n-1/push-0a", "push", "sent", "", "")],
        ),
        timeline=[Step(1, "released", {"deliveries": [delivery]}), Step(2, "sent", {})],
    )
    assert (await scene.report("invalid_address")).status_code == 204
    prune, report = scene.log.sent
    assert prune == (
        e.COMMANDS.name,
        "RemoveDevice",
        {"user_id": "u", "token": "tok", "reason": "invalid"},
    )
    assert report[2]["status"] == "invalid_address"


async def test_a_campaign_is_not_for_codes(scene: Scene) -> None:
    body = {"campaignId": "c", "type": "login", "params": {"code": "1"}, "userIds": ["u"]}
    problem_of(await scene.client.post("/v1/notification-campaigns", json=body), 400)
    news = scene.reads.templates["login"]
    scene.reads.templates["news"] = replace(news, template="news", priority="marketing")
    answer = await scene.client.post(
        "/v1/notification-campaigns", json=body | {"type": "news", "userIds": ["u", "v", "u"]}
    )
    assert answer.json() == {"campaign_id": "c", "part": 0, "recipients": 2}


async def test_a_template_is_compiled_before_it_is_published(scene: Scene) -> None:
    url = "/v1/notification-templates/hello"
    body = {"priority": "marketing", "defaultLocale": "en",
            "contents": [{"channel": "sms", "locale": "en", "text": "{{ a"}]}  # fmt: skip
    problem_of(await scene.client.put(url, json=body), 400)
    body["contents"] = [{"channel": "sms", "locale": "en", "text": "{{ a }}"}]
    late = body | {"priority": "otp", "digestWindowMs": 60_000}
    problem_of(await scene.client.put(url, json=late), 422)
    assert not scene.log.sent
    answer = await scene.client.put(url, json=body)
    ((_, _, row),) = scene.log.sent
    assert answer.json() == {"type": "hello", "version": row["version"]}
