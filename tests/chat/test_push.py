"""Who is told of a message by notification: those who are in it and not there, once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from connectors.notifications.templates import Template
from streams.chat.push import LIFETIME_MS, Push, template
from streams.runtime.reactor.testing import Harness
from tests.chat.desk import PUSH, Desk


class Around:
    """The history's lists of members, and who is there."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.there, self.behind, self.looks = desk, {"alice"}, False, 0

    async def members(self, conversation_id: str, seq: int) -> Sequence[str] | None:
        self.looks += 1
        found = [e.members for e in self.desk.entries if e.seq == seq]
        return None if self.behind else found[0]

    async def online(self, users: Sequence[str]) -> Mapping[str, bool]:
        return {user: user in self.there for user in users}


def begun() -> tuple[Desk, Around, Harness]:
    desk = Desk()
    desk.start("alice", "bob", "carol")
    around = Around(desk)
    harness = Harness(PUSH, Push(around, around, lambda: harness.now_ms))
    return desk, around, harness


async def test_those_who_are_not_there_are_told_and_the_sender_is_not() -> None:
    desk, around, harness = begun()
    desk.say("bob", "hello " + "x" * 500)
    desk.change("bob", 2, "hullo")
    await harness.feed(*desk.log.events)
    (asked,) = harness.outcomes
    assert (asked.user_ids, asked.campaign_id) == (["carol"], "chat/room/2")
    assert len(json.loads(asked.params)["preview"]) == 120
    around.there = {"alice", "bob", "carol"}
    desk.say("alice", "all here")
    await harness.feed(desk.log.events[-1])
    assert len(harness.outcomes) == 1
    assert around.looks == 1  # members change by entries, so a list is read once


async def test_who_was_in_it_then_counts_and_not_who_is_in_it_now() -> None:
    desk, around, harness = begun()
    around.there = set()
    desk.say("alice", "before")
    desk.members("alice", add=["dave"], remove=["carol"])
    desk.say("alice", "after")
    await harness.feed(*desk.log.events)
    assert [one.user_ids for one in harness.outcomes] == [["bob", "carol"], ["bob", "dave"]]


async def test_a_history_that_is_behind_is_waited_for() -> None:
    desk, around, harness = begun()
    around.behind = True
    desk.say("bob", "hello")
    await harness.feed(*desk.log.events)
    assert harness.outcomes == []
    around.behind = False
    await harness.advance(10_000)
    assert [one.user_ids for one in harness.outcomes] == [["carol"]]


async def test_what_is_old_disturbs_nobody() -> None:
    desk, _, harness = begun()
    desk.say("bob", "hello")
    harness.now_ms = desk.entries[-1].recorded_at + LIFETIME_MS
    await harness.feed(*desk.log.events)
    assert (harness.outcomes, len(harness.calls)) == ([], 1)


def test_the_text_can_be_rendered() -> None:
    shown = Template(template(0)).render("push", "en", '{"title": "Lunch", "preview": "At noon?"}')
    assert (shown.subject, shown.text) == ("Lunch", "At noon?")
