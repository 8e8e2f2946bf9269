"""The API of the feed for many users, for tests on the real stack."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import httpx

from api.auth import READ, WRITE
from api.issuer import DevIssuer
from schemas.feed.events import EVENTS, RelationChange
from streams.feed import SYSTEM
from streams.runtime.settings import Settings
from tests import stack
from tests.feed import people
from tests.feed.oracle import Oracle

AGENTS = [one.name for one in (*SYSTEM.deciders, *SYSTEM.projections)]
VERBS: dict[RelationChange, tuple[str, str]] = {
    "followed": ("PUT", "follows"),
    "unfollowed": ("DELETE", "follows"),
    "muted": ("PUT", "mutes"),
    "unmuted": ("DELETE", "mutes"),
    "blocked": ("PUT", "blocks"),
    "unblocked": ("DELETE", "blocks"),
}


class Town:
    """Users nobody else has; what they do is remembered by its place in the log."""

    def __init__(self, api: stack.Api, folder: Path) -> None:
        self._api = api
        settings = Settings.read().api
        self._issuer = DevIssuer(folder / "keys", settings.issuer, settings.audience)
        self._run = uuid.uuid4().hex[:8]
        self._tokens: dict[str, str] = {}
        self.log: list[tuple[int, int, Any]] = []
        """Partition, offset, event."""

    def name(self, user: str) -> str:
        return f"{user}-{self._run}"

    async def ask(
        self, user: str, method: str, path: str, body: Any = None, **headers: str
    ) -> httpx.Response:
        if user not in self._tokens:
            self._tokens[user] = self._issuer.token(self.name(user), [READ, WRITE], 3_600)
        headers = {"Authorization": f"Bearer {self._tokens[user]}", "Prefer": "wait=30"} | headers
        sent = {"json": body} if body is not None else {}
        answer = await self._api.client.request(method, path, headers=headers, **sent, timeout=60)
        if "Headrace-Position" in answer.headers:
            for place, offset in stack.offsets(answer.headers["Headrace-Position"]).items():
                self._api.written[place] = max(offset, self._api.written.get(place, -1))
        return answer

    async def post(self, user: str, text: str, at_ms: int | None = None) -> str:
        at_ms = now_ms() if at_ms is None else at_ms
        answer = await self.ask(user, "POST", "/v1/posts", {"text": text, "eventTime": at_ms})
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["postId"]
        self._remember(answer, people.post(self.name(user), made, at_ms, text))
        return made

    async def remove(self, user: str, post_id: str) -> None:
        answer = await self.ask(user, "DELETE", f"/v1/posts/{post_id}")
        assert answer.status_code == 200, answer.text
        at_ms = answer.json()["eventTime"]
        self._remember(answer, people.remove(self.name(user), post_id, at_ms))

    async def relate(self, user: str, change: RelationChange, author: str) -> None:
        (method, relation), at_ms = VERBS[change], now_ms()
        path = f"/v1/{relation}/{self.name(author)}?eventTime={at_ms}"
        answer = await self.ask(user, method, path)
        assert answer.status_code == 200, answer.text
        event = people.relate(self.name(user), change, self.name(author), at_ms)
        self._remember(answer, event)

    async def page(self, user: str, **params: Any) -> Any:
        """A page of the feed that has seen all that was written."""
        after = ", ".join(f"{place}/{offset}" for place, offset in self._api.written.items())
        query = "&".join(f"{name}={value}" for name, value in params.items())
        until_s = time.monotonic() + stack.READ_TIMEOUT_S
        while True:
            answer = await self.ask(
                user, "GET", f"/v1/feed?{query}", **{"Headrace-After": after, "Prefer": "wait=10"}
            )
            if answer.status_code not in {503, 504} or time.monotonic() > until_s:
                assert answer.status_code == 200, answer.text
                return answer.json()

    async def feed(self, user: str, **params: Any) -> list[str]:
        """The ids of the whole feed, page by page."""
        page = await self.page(user, **params)
        found = [one["postId"] for one in page["posts"]]
        while page["next"] is not None:
            page = await self.page(user, **params, cursor=page["next"])
            found += [one["postId"] for one in page["posts"]]
        return found

    def oracles(self) -> list[Oracle]:
        """What every log partition must come to, by what these users have done."""
        limits = Settings.read().feed
        return [
            Oracle(limits).fold(event for at, _, event in sorted(self.log, key=_place) if at == p)
            for p in range(EVENTS.partitions)
        ]

    def _remember(self, answer: httpx.Response, event: Any) -> None:
        ((place, offset),) = stack.offsets(answer.headers["Headrace-Position"]).items()
        self.log.append((int(place.rsplit("/", 1)[1]), offset, event))


def _place(one: tuple[int, int, Any]) -> tuple[int, int]:
    return one[:2]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
