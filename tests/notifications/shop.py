"""A shop that notifies: providers to send with, templates, and the product on the local stack."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from connectors.notifications.simulators.http import HttpSimulator
from connectors.notifications.simulators.smtp import SmtpSimulator

SECRET = "callback secret"
CODE, ORDER, NEWS, LIKES = "login_code", "order_shipped", "newsletter", "likes"


@dataclass
class Providers:
    """Two providers of SMS, one of mail, one of push, in this process."""

    sms_a: HttpSimulator = field(default_factory=HttpSimulator)
    sms_b: HttpSimulator = field(default_factory=HttpSimulator)
    push: HttpSimulator = field(default_factory=HttpSimulator)
    mail: SmtpSimulator = field(default_factory=SmtpSimulator)

    async def start(self, home: Path, rate_per_s: int = 2_000) -> None:
        """Listen, and write the settings that name them."""
        urls = {name: await getattr(self, name).start() for name in ("sms_a", "sms_b", "push")}
        lines = []
        for name, url in urls.items():
            lines += ["[[provider]]", f'name = "{name.replace("_", "-")}"']
            lines += [f'channel = "{name[:3] if name != "push" else name}"', f'url = "{url}"']
            lines += ['key = "secret"', f'callback_secrets = ["{SECRET}"]']
            lines += [f"rate_per_s = {rate_per_s}", "burst = 200", "timeout_ms = 2000"]
        lines += ["[[provider]]", 'name = "mail"', 'channel = "email"', 'host = "127.0.0.1"']
        lines += [f"port = {await self.mail.start()}", 'sender = "Shop <shop@example.org>"']
        lines += [f"rate_per_s = {rate_per_s}", "burst = 200"]
        (home / "notifications.toml").write_text("\n".join(lines) + "\n")

    async def stop(self) -> None:
        """Stop listening."""
        for one in (self.sms_a, self.sms_b, self.push, self.mail):
            await one.stop()

    def taken(self) -> list[dict[str, Any]]:
        """All messages that all providers took."""
        boxes = (self.sms_a, self.sms_b, self.push, self.mail)
        return [message for one in boxes for message in one.inbox.messages]

    def of(self, notification_id: str) -> list[dict[str, Any]]:
        """The messages of one notification."""
        return [one for one in self.taken() if one["id"].startswith(f"{notification_id}/")]


@asynccontextmanager
async def providers(home: Path) -> AsyncIterator[Providers]:
    """The providers, listening."""
    made = Providers()
    await made.start(home)
    try:
        yield made
    finally:
        await made.stop()


def text(channel: str, locale: str, source: str, **parts: str) -> dict[str, str]:
    """One text of a template."""
    return {"channel": channel, "locale": locale, "text": source, **parts}


TEMPLATES: dict[str, dict[str, Any]] = {
    CODE: {
        "priority": "otp",
        "defaultLocale": "en",
        "lifetimeMs": 300_000,
        "contents": [
            text("sms", "en", "Your code is {{ code }}."),
            text("sms", "de", "Ihr Code lautet {{ code }}."),
        ],
    },
    ORDER: {
        "priority": "transactional",
        "defaultLocale": "en",
        "contents": [
            text(
                *("email", "en", "Order {{ order }} is on its way, {{ name }}."),
                subject="Order {{ order }}",
                html="<p>Order <b>{{ order }}</b> is on its way, {{ name }}.</p>",
            ),
            text("push", "en", "Order {{ order }} is on its way.", subject="On its way"),
            text("push", "de", "Bestellung {{ order }} ist unterwegs.", subject="Unterwegs"),
        ],
    },
    NEWS: {
        "priority": "marketing",
        "defaultLocale": "en",
        "contents": [text("push", "en", "{{ headline }}", subject="News")],
    },
    LIKES: {
        "priority": "marketing",
        "defaultLocale": "en",
        "digestWindowMs": 60_000,
        "contents": [
            text("push", "en", "{{ count }} likes: {% for i in items %}{{ i.who }} {% endfor %}")
        ],
    },
}


@dataclass
class Shop:
    """The API as the shop uses it. Names of recipients begin with this run's tag."""

    client: httpx.AsyncClient
    tag: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    after: str = ""
    """Position of the templates, once they are published."""

    async def publish(self) -> str:
        """Publish the templates; returns the position of them all."""
        places = []
        for name, body in TEMPLATES.items():
            answer = await self.client.put(f"/v1/notification-templates/{name}", json=body)
            assert answer.status_code == 200, answer.text
            places.append(answer.headers["Headrace-Position"])
        return ", ".join(places)

    def user(self, name: str) -> str:
        """A recipient of this run."""
        return f"{self.tag}-{name}"

    async def get(self, path: str) -> httpx.Response:
        """GET, as it is now; of templates once they are there."""
        headers = {"Headrace-After": self.after} if "templates" in path else {}
        return await self.client.get(path, headers=headers)

    async def put(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """PUT something of a recipient."""
        patient = {"Prefer": "wait=30"}  # the first waits until the decider owns its partition
        answer = await self.client.put(path, json=body, headers=patient)
        assert answer.status_code == 200, answer.text
        return answer

    async def join(self, name: str, **preferences: Any) -> str:
        """A recipient with a mail address, a phone, a device and preferences."""
        user = self.user(name)
        base = f"/v1/users/{user}"
        contact = {"email": f"{user}@example.org", "phone": "+4915112345678"}
        await self.put(f"{base}/notification-contact", contact)
        await self.put(f"{base}/devices/tok-{user}", {"platform": "android"})
        await self.put(f"{base}/notification-preferences", preferences)
        return user

    async def send(self, user: str, type_: str, params: dict[str, Any], **more: Any) -> Any:
        """Send a notification; returns the answer's body."""
        body = {"userId": user, "type": type_, "params": params, **more}
        answer = await self.client.post("/v1/notifications", json=body)
        assert answer.status_code in {200, 202}, answer.text
        return answer.json()
