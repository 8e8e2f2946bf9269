"""The demo of webhook delivery: GitHub's own example payloads, and receivers that misbehave.

Every payload becomes a message to six endpoints: one in good health whose secret is replaced
half-way, one that wants issues and is switched off half-way, one that is down at first and asks for
order by repository, one that takes calls and never answers, and two whose URL leads inside. What
the receivers got, checked by a signature that shares no code with the product, is compared with
the file, and so is what is pulled by cursor.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
from rich.console import Console

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from connectors.datasets import DATASETS, fetch, github_webhooks
from connectors.datasets.github_webhooks import Hook
from connectors.webhooks import new_secret
from infra.demo import processes
from infra.demo.compare import Check
from infra.demo.hooked import Receiver
from infra.error import StackError
from infra.local import Stack
from infra.local.home import Home
from schemas.apply import apply
from streams.runtime.settings import Settings

DOWN_S = 3.0
"""How long the one that is down is down; it is called again 5 s after its first refusal."""
PATIENCE_S = 60.0
PARTS = ("kafka", "registry", "redis", "cassandra")
SOME = ("issues.*", "issue_comment.*", "pull_request.*")


class Shop:
    """A tenant: its client, its endpoints, and the messages it has published."""

    def __init__(self, client: httpx.Client, hooks: list[Hook]) -> None:
        self.client, self.hooks = client, hooks
        self.base = f"/v1/webhooks/demo{int(time.time())}"
        self.endpoints: list[str] = []
        self.ids: list[str] = []

    def ask(self, path: str, body: Any = None) -> Any:
        """POST, and the verdict."""
        return self.client.post(self.base + path, json=body).raise_for_status().json()

    def join(self, name: str, url: str, secret: str, **more: Any) -> None:
        """An endpoint for everything from now on."""
        self.ask("/endpoints", {"id": name, "url": url, "secret": secret, **more})
        self.endpoints.append(name)

    def publish(self, hooks: list[Hook]) -> None:
        """One after the other, so that the order is known."""
        for one in hooks:
            body = {"eventType": one.event_type, "payload": one.payload, "orderKey": one.about}
            self.ids.append(self.ask("/messages", body)["id"])

    def statuses(self, endpoint: str) -> list[str]:
        """What became of each message at an endpoint, newest first."""
        found: list[str] = []
        cursor: int | None = None
        while True:
            params = {"limit": 200} | ({} if cursor is None else {"cursor": cursor})
            page = self._get(f"/endpoints/{endpoint}/deliveries", params)
            found += [one["status"] for one in page["items"]]
            if (cursor := page["next"]) is None:
                return found

    def pulled(self) -> list[dict[str, Any]]:
        """All messages, by cursor."""
        found: list[dict[str, Any]] = []
        while len(found) < len(self.ids):
            page = self._get("/messages", {"cursor": len(found), "limit": 100})
            found += page["items"]
        return found

    def leave(self) -> None:
        """Delete the endpoints: what is still to be tried comes to its end."""
        for name in self.endpoints:
            self.client.delete(f"{self.base}/endpoints/{name}")

    def _get(self, path: str, params: dict[str, int]) -> Any:
        return self.client.get(self.base + path, params=params).raise_for_status().json()


def run(console: Console, home: Home) -> list[Check]:
    """Run it on the local stack; returns what was compared. Raises `StackError`."""
    console.rule("[bold]Webhook delivery[/]", align="left")
    source = DATASETS["github-webhooks"]
    hooks = github_webhooks.hooks(fetch(source, home.root / "datasets"))
    console.print(f"{len(hooks)} events ({source.title}, {source.licence})")
    settings = Stack(home=home).up(PARTS)
    apply(settings)
    allowed = {"HEADRACE_OUTBOUND__ALLOW": '["127.0.0.0/8"]'}
    with ExitStack() as running:
        well, some, down, dead, inner = (running.enter_context(Receiver()) for _ in range(5))
        url = running.enter_context(processes.product(home, settings, "webhooks", **allowed))
        shop = Shop(running.enter_context(_client(home, settings, url)), hooks)
        running.callback(shop.leave)
        down.down_s, dead.hangs = DOWN_S, True
        shop.join("well", well.url, well.secret)
        shop.join("some", some.url, some.secret, eventTypes=list(SOME))
        shop.join("down", down.url, down.secret, ordered=True)
        shop.join("dead", dead.url, dead.secret)
        shop.join("inside", inner.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"), well.secret)
        shop.join("metadata", "http://169.254.169.254/latest/meta-data", well.secret)
        checks = list(_story(console, shop, (well, some, down, dead)))
        return [*checks, Check("inside", "calls of it", 0, inner.answered)]


def _story(
    console: Console, shop: Shop, receivers: tuple[Receiver, Receiver, Receiver, Receiver]
) -> Iterator[Check]:
    well, some, down, dead = receivers
    half = len(shop.hooks) // 2
    since_ms = int(time.time() * 1_000)
    shop.publish(shop.hooks[:half])
    well.secrets.append(new_secret())
    shop.ask("/endpoints/well/rotate-secret", {"secret": well.secrets[-1]})
    shop.ask("/endpoints/some/disable")
    shop.publish(shop.hooks[half:])
    console.print(f"published, {len(dead.got)} calls hang at an endpoint that is dead")
    wanted = [
        id_ for id_, one in zip(shop.ids, shop.hooks, strict=True) if _is_some(one.event_type)
    ]
    _wait("the healthy endpoint", lambda: len(well.first()) >= len(shop.ids))
    yield from _received("well", shop, well, shop.ids)
    yield Check("well", "while another endpoint hangs", 0, dead.answered)
    before = len(some.first())
    shop.ask("/endpoints/some/enable")
    shop.ask("/endpoints/some/recover", {"since": since_ms})
    _wait("the recovery", lambda: len(some.first()) >= len(wanted))
    console.print(f"recovered: {len(some.first()) - before} messages of the time it was off")
    yield from _received("some", shop, some, wanted)
    _wait("the endpoint that was down", lambda: len(down.first()) >= len(shop.ids))
    console.print(f"down for {DOWN_S:.0f} s: {down.refused} refusals, {len(down.got)} calls")
    yield from _received("down", shop, down, shop.ids)
    yield Check("down", "order by repository", *_order(shop, down))
    for name in ("inside", "metadata"):
        _wait(name, lambda name=name: shop.statuses(name).count("failed") >= len(shop.ids))  # type: ignore[misc]
        yield Check(name, "refused", len(shop.ids), shop.statuses(name).count("failed"))
    pulled = shop.pulled()
    payloads = [one.payload for one in shop.hooks]
    yield Check("pull", "messages by cursor", len(shop.ids), len(pulled))
    different = sum(
        (one["id"], one["payload"], one["sequence"]) != (id_, payload, n)
        for n, (one, id_, payload) in enumerate(zip(pulled, shop.ids, payloads, strict=True))
    )
    yield Check("pull", "number and body of each", len(shop.ids), len(pulled), different)


def _is_some(event_type: str) -> bool:
    return event_type.startswith(tuple(one.removesuffix("*") for one in SOME))


def _received(name: str, shop: Shop, at: Receiver, wanted: list[str]) -> Iterator[Check]:
    """What one receiver got, against the file."""
    first = at.first()
    yield Check(name, "messages", len(wanted), len(first), len(set(wanted) ^ first.keys()))
    yield Check(name, "signatures that do not fit", 0, at.unsigned)
    payloads = dict(zip(shop.ids, (one.payload for one in shop.hooks), strict=True))
    different = sum(json.loads(body) != payloads.get(id_) for id_, body in at.got)
    yield Check(name, "bodies", len(at.got), len(at.got), different)


def _order(shop: Shop, at: Receiver) -> tuple[int, int, int]:
    """Messages by repository in the order they came first: how many, and how many are elsewhere."""
    about = dict(zip(shop.ids, (one.about for one in shop.hooks), strict=True))
    came = [id_ for id_ in at.first() if about.get(id_)]
    elsewhere = 0
    for key in {one for one in about.values() if one}:
        wanted = [id_ for id_ in shop.ids if about[id_] == key]
        seen = [id_ for id_ in came if about[id_] == key]
        elsewhere += sum(one != other for one, other in zip(wanted, seen, strict=False))
    return sum(bool(one) for one in about.values()), len(came), elsewhere


def _client(home: Home, settings: Settings, url: str) -> httpx.Client:
    issuer = DevIssuer(home.root / "keys", settings.api.issuer, settings.api.audience)
    token = issuer.token("demo", [READ, WRITE], 3_600)
    headers = {"Authorization": f"Bearer {token}", "Prefer": "wait=30"}
    return httpx.Client(base_url=url, headers=headers, timeout=60)


def _wait(what: str, good: Callable[[], bool]) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while not good():
        if time.monotonic() > until_s:
            raise StackError(f"{what} does not get all")
        time.sleep(0.1)
