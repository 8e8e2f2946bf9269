"""The decider of ids without a broker, for who asks it."""

from __future__ import annotations

from typing import Any

import msgspec

from connectors.asking import NoVerdict, Refused
from streams.ids import SYSTEM
from streams.runtime.decider.testing import DeciderHarness
from streams.runtime.topic import Topic


class Desk:
    """Asks the real rules; `down` is a log that does not answer."""

    def __init__(self) -> None:
        self.harness = DeciderHarness(SYSTEM.deciders[0])
        self.down = False
        self.asked: list[Any] = []

    async def ask(self, topic: Topic, row: Any, key: str = "") -> dict[str, Any]:
        self.asked.append(row)
        if self.down:
            raise NoVerdict("down")
        answer = self.harness.send(row, idempotency_key=key)
        body: dict[str, Any] = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            raise Refused(answer.status, body["code"], body["detail"])
        return body

    def named(self, name: str) -> int:
        """How many commands of that name were asked."""
        return sum(type(row).__name__ == name for row in self.asked)
