"""Commands from inside: those that wait to be decided, in every partition, and not for ever."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.notifications import commands
from connectors.notifications.commands import Commands
from connectors.replies import Waiters
from schemas.notifications.events import COMMANDS, RemoveDevice
from streams.runtime.decider.replies import Answer
from streams.runtime.decider.wire import envelope_of
from streams.runtime.kafka import partition_of


class Log(Waiters):
    """A log whose decider answers, or does not."""

    address = "here"

    def __init__(self, *, decides: bool = True) -> None:
        super().__init__()
        self.rows: list[tuple[Any, str]] = []
        self.decides = decides

    async def kept(self, correlation_id: str) -> Answer | None:
        return None

    async def send(self, topic: str, record_name: str, row: Any, headers: Any = ()) -> Any:
        return await self.send_many(topic, [(record_name, row)], headers)

    async def send_many(self, topic: str, rows: Any, headers: Any = ()) -> Any:
        assert topic == COMMANDS.name
        envelope = envelope_of(headers, "")
        self.rows += [(row, envelope.reply_to) for _, row in rows]
        if self.decides and envelope.reply_to:
            self.heard(Answer(envelope.correlation_id, 200, b"{}", "", "t", 0, 0, 0))
        return []


def rows(count: int) -> list[RemoveDevice]:
    return [RemoveDevice(f"u-{n}", "t", "invalid") for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3, 50])
async def test_a_verdict_is_asked_for_behind_all_others_of_each_partition(count: int) -> None:
    log = Log()
    await Commands(log, log).settle(rows(count))
    assert sorted(row.user_id for row, _ in log.rows) == sorted(r.user_id for r in rows(count))
    by_partition: dict[int, list[str]] = {}
    for row, reply_to in log.rows:
        by_partition.setdefault(partition_of(row.user_id, COMMANDS.partitions), []).append(reply_to)
    for marks in by_partition.values():
        assert marks == [*[""] * (len(marks) - 1), "here"]


async def test_a_verdict_that_never_comes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "VERDICT_TIMEOUT_S", 0.01)
    log = Log(decides=False)
    await Commands(log, log).settle(rows(10))
    assert len(log.rows) == 10
    assert not log._open


async def test_plain_commands_ask_for_nothing() -> None:
    log = Log()
    await Commands(log, log).send(rows(2))
    assert [reply_to for _, reply_to in log.rows] == ["", ""]
