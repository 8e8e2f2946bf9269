"""One order for everything, each message once, and who may do what."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from streams.chat.rules import BODY_CHARS_MAX, CHANGEABLE_MIN, CHUNK, MEMBERS_MAX
from tests.chat.desk import ROOM, Desk, evening, told


def refused(answer: Any) -> tuple[int, str]:
    return answer.status, told(answer)["code"]


@pytest.mark.parametrize("seed", range(5))
def test_numbers_have_no_gaps_in_any_conversation_through_crashes(seed: int) -> None:
    desk = evening(seed)
    by_room = defaultdict(list)
    for entry in desk.entries:
        by_room[entry.conversation_id].append(entry.seq)
    assert set(by_room) == {"red", "green", "blue"}
    for numbers in by_room.values():
        assert numbers == list(range(1, len(numbers) + 1))
    assert desk.log.replay_digest() == desk.log.digest()


def test_a_message_sent_again_is_the_same_message() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    first = desk.say("bob", "hello", id_="m1")
    desk.log.crash()
    again = desk.say("bob", "hello", id_="m1")
    assert (first.status, told(first)["seq"]) == (201, 2)
    assert (again.body, again.replay) == (first.body, True)
    assert [entry.seq for entry in desk.entries] == [1, 2]
    assert desk.say("bob", "something else", id_="m1").status == 422
    assert told(desk.say("alice", "hello", id_="m1"))["seq"] == 3


def test_edits_and_deletes_have_their_place_behind_what_they_are_about() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    desk.say("bob", "hello")
    assert told(desk.change("bob", 2, "hallo"))["seq"] == 3
    assert told(desk.change("bob", 2, None))["seq"] == 4
    assert refused(desk.change("bob", 2, "too late")) == (409, "not_changeable")
    assert [(e.change, e.of) for e in desk.entries[1:]] == [
        ("sent", 0),
        ("edited", 2),
        ("deleted", 2),
    ]


def test_only_who_wrote_a_message_changes_it() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    desk.say("bob", "hello")
    assert refused(desk.change("alice", 2, "no")) == (403, "not_yours")
    for nothing in (0, 1, 3, -1, 10**9):
        assert refused(desk.change("bob", nothing, "x")) == (409, "not_changeable")


def test_what_is_old_stays_and_what_is_remembered_has_a_bound() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    for n in range(CHANGEABLE_MIN + 2 * CHUNK):
        desk.say("bob", f"word {n}")
    last = desk.entries[-1].seq
    assert desk.change("bob", last - CHANGEABLE_MIN + 1, "still").status == 200
    assert refused(desk.change("bob", 2, "late")) == (409, "not_changeable")
    kept = [key for key, _ in desk.log.state["authors"].items()]
    assert len(kept) <= CHANGEABLE_MIN // CHUNK + 2


def test_strangers_are_not_even_told_that_there_is_a_conversation() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    for answer in (
        desk.say("eve", "hi"),
        desk.change("eve", 2, "x"),
        desk.mark("eve", 1),
        desk.members("eve", add=["eve"]),
        desk.say("alice", "hi", room="nowhere"),
    ):
        assert refused(answer) == (404, "no_conversation")


def test_members_come_and_go() -> None:
    desk = Desk()
    assert told(desk.start("alice", "bob"))["members"] == ["alice", "bob"]
    assert told(desk.members("bob", add=["carol"]))["members"] == ["alice", "bob", "carol"]
    assert refused(desk.members("bob", remove=["carol"])) == (403, "not_owner")
    assert refused(desk.members("bob", add=["carol"])) == (409, "no_change")
    assert told(desk.members("carol", remove=["carol"]))["members"] == ["alice", "bob"]
    assert desk.say("carol", "still here?").status == 404
    assert told(desk.members("alice", remove=["bob"]))["members"] == ["alice"]
    entry = desk.entries[1]
    assert (entry.added, entry.removed, entry.members_seq) == (["carol"], [], 2)
    desk.say("alice", "alone")
    assert (desk.entries[-1].members, desk.entries[-1].members_seq) == ([], 4)


def test_a_group_has_a_bound() -> None:
    desk = Desk()
    crowd = [f"u{n}" for n in range(MEMBERS_MAX)]
    assert refused(desk.start("alice", *crowd)) == (409, "group_full")
    assert desk.start("alice", *crowd[1:]).status == 201
    assert refused(desk.members("alice", add=["one-more"])) == (409, "group_full")


def test_a_direct_conversation_is_of_two_for_good() -> None:
    desk = Desk()
    assert refused(desk.start("alice", "alice", kind="direct")) == (422, "not_two")
    assert refused(desk.start("alice", "b", "c", kind="direct")) == (422, "not_two")
    assert desk.start("alice", "bob", kind="direct").status == 201
    assert refused(desk.start("alice", "bob", kind="direct")) == (409, "conversation_exists")
    assert refused(desk.members("alice", add=["carol"])) == (409, "direct")


def test_marks_move_forward_and_not_past_the_end() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    desk.say("bob", "one")
    desk.say("bob", "two")
    assert told(desk.mark("alice", 2)) == {"delivered": 2, "read": 0}
    assert told(desk.mark("alice", 1, 3)) == {"delivered": 3, "read": 3}
    assert told(desk.mark("alice", 0, 0)) == {"delivered": 3, "read": 3}
    assert told(desk.mark("bob", 10**9, 10**9)) == {"delivered": 3, "read": 3}
    desk.members("alice", remove=["bob"])
    assert (ROOM, "bob") not in desk.log.state["marks"]


@pytest.mark.parametrize("body", ["", "  \n", "x" * (BODY_CHARS_MAX + 1)])
def test_what_cannot_be_said(body: str) -> None:
    desk = Desk()
    desk.start("alice", "bob")
    assert refused(desk.say("bob", body)) == (422, "bad_body")
    desk.say("bob", "hello")
    if len(body) < BODY_CHARS_MAX:
        assert refused(desk.change("bob", 2, body)) == (422, "bad_body")


def test_an_answer_is_to_an_entry_that_there_is() -> None:
    desk = Desk()
    desk.start("alice", "bob")
    assert refused(desk.say("bob", "to what?", reply_to=2)) == (422, "bad_reply")
    assert desk.say("bob", "well", reply_to=1).status == 201
