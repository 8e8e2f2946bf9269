"""Codes, aliases, expiry and caps, decided by the real owner."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from schemas.links.codes import CODE_CHARS, RESERVED, is_code
from schemas.links.events import COMMANDS, SwitchLink, UseLink
from streams.runtime.decider.testing import START_MS
from streams.runtime.kafka import partition_of
from tests.links.desk import URL, Desk, create, told


def test_codes_of_all_partitions_are_distinct_and_lie_where_they_were_made() -> None:
    desk, codes = Desk(), []
    for n in range(2_000):
        route = f"any-{n}"
        code = told(desk.send(create(route, alias=False)))["code"]
        assert partition_of(code, COMMANDS.partitions) == partition_of(route, COMMANDS.partitions)
        codes.append(code)
    assert len(set(codes)) == 2_000
    assert {len(code) for code in codes} == {CODE_CHARS}
    assert codes != sorted(codes)
    for one in desk.partitions:
        assert one.replay_digest() == one.digest()


def test_a_code_that_somebody_has_as_an_alias_is_passed_over() -> None:
    first = told(Desk().send(create("x", alias=False)))["code"]
    desk = Desk()
    assert desk.send(create(first)).status == 201
    assert told(desk.send(create("x", alias=False)))["code"] != first


def test_a_repeat_with_its_key_is_the_same_link() -> None:
    desk, route = Desk(), str(uuid.uuid4())
    first, again = (desk.send(create(route, alias=False), idempotency_key="k") for _ in range(2))
    assert (first.body, again.replay) == (again.body, True)
    other = desk.send(create(route, alias=False, url="https://b.example/"), idempotency_key="k")
    assert other.status == 422


def test_an_alias_is_taken_once_also_after_a_crash() -> None:
    desk = Desk()
    assert desk.send(create("party")).status == 201
    for one in desk.partitions:
        one.crash()
    taken = desk.send(create("party", owner="bob"))
    assert (taken.status, told(taken)["code"]) == (409, "alias_taken")
    assert desk.send(create("Party")).status == 201


@pytest.mark.parametrize(
    "alias", ["ab", "a/b", "é-é-é", "x" * 65, "a b", "", *sorted(RESERVED), "Metrics"]
)
def test_what_cannot_be_an_alias(alias: str) -> None:
    assert not is_code(alias)
    if alias:
        assert told(Desk().send(create(alias)))["code"] == "bad_alias"


@pytest.mark.parametrize(
    ("more", "code"),
    [({"ttl_ms": 0}, "bad_ttl"), ({"ttl_ms": 10**15}, "bad_ttl"), ({"clicks_max": 0}, "bad_cap")],
)
def test_what_makes_no_sense_is_refused(more: dict[str, Any], code: str) -> None:
    answer = Desk().send(create("party", **more))
    assert (answer.status, told(answer)["code"]) == (422, code)


def test_a_link_expires_by_itself() -> None:
    desk = Desk()
    assert told(desk.send(create("party", ttl_ms=5_000)))["expiresAt"] == START_MS + 5_000
    for one in desk.partitions:
        one.advance(4_999)
    assert [row.change for row in desk.events()] == ["created"]
    for one in desk.partitions:
        one.advance(1)
    assert [row.change for row in desk.events()] == ["created", "expired"]
    assert desk.send(create("party")).status == 409


@pytest.mark.parametrize("crashes", [False, True])
def test_a_cap_is_exact_whatever_happens_in_between(crashes: bool) -> None:
    desk = Desk()
    desk.send(create("party", clicks_max=10))
    answers = []
    for n in range(30):
        answers.append(desk.send(UseLink("party")))
        if crashes and n % 4 == 0:
            for one in desk.partitions:
                one.crash()
    assert [one.status for one in answers] == [200] * 10 + [410] * 20
    assert told(answers[9])["used"] == 10


def test_only_its_owner_switches_a_link_and_a_disabled_one_has_no_clicks() -> None:
    desk = Desk()
    desk.send(create("party", clicks_max=5))
    assert desk.send(SwitchLink("party", "bob", True)).status == 403
    assert told(desk.send(SwitchLink("party", "alice", True)))["disabled"] is True
    assert desk.send(UseLink("party")).status == 410
    assert told(desk.send(SwitchLink("party", "alice", False)))["longUrl"] == URL
    assert desk.send(UseLink("party")).status == 200


def test_of_no_link_nothing_can_be_asked() -> None:
    for row in (SwitchLink("nope", "alice", True), UseLink("nope")):
        answer = Desk().send(row)
        assert (answer.status, told(answer)["code"]) == (404, "no_link")
