"""The rules of links without a broker: one partition, or all of them."""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.asking import NoVerdict, Refused
from schemas.links.events import COMMANDS, CreateLink, LinkClicked
from streams.links import SYSTEM
from streams.runtime.decider.testing import DeciderHarness
from streams.runtime.kafka import partition_of
from streams.runtime.topic import Topic

(DECIDER,) = SYSTEM.deciders
TABLE, COPY, CLICKS = SYSTEM.projections
URL = "https://example.org/"
PERSON = "Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/128.0"


def create(code: str, *, alias: bool = True, **more: Any) -> CreateLink:
    asked: dict[str, Any] = {
        "url": URL, "owner": "alice", "permanent": False, "ttl_ms": None, "clicks_max": None,
    }  # fmt: skip
    return CreateLink(code=code, alias=alias, **{**asked, **more})


def click(code: str = "abc", at_ms: int = 0, agent: str = PERSON, **more: Any) -> LinkClicked:
    told = {"method": "GET", "country": "ZZ", "referrer": ""}
    return LinkClicked(code=code, event_time=at_ms, user_agent=agent, **{**told, **more})


class Desk:
    """All partitions of the decider; asks go where their key lies."""

    def __init__(self) -> None:
        self.partitions = [DeciderHarness(DECIDER) for _ in range(COMMANDS.partitions)]
        self.down = False

    def send(self, row: Any, **more: Any) -> Any:
        return self.partitions[partition_of(row.code, COMMANDS.partitions)].send(row, **more)

    async def ask(self, topic: Topic, row: Any, key: str = "") -> dict[str, Any]:
        if self.down:
            raise NoVerdict("down")
        answer = self.send(row, idempotency_key=key)
        body = told(answer)
        if answer.status >= 400:
            raise Refused(answer.status, body["code"], body["detail"])
        return body

    def events(self) -> list[Any]:
        return [row for one in self.partitions for row in one.events if hasattr(row, "url")]


def told(answer: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(answer.body)
    return found
