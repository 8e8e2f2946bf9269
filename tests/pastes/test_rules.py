"""Who may read a paste, for how long, and when its content goes; decided by the real owner."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from schemas.pastes.contents import CONTENT_BYTES_MAX
from schemas.pastes.events import (
    ClaimPaste,
    DeletePaste,
    NoteKey,
    ObjectDropped,
    PasteChanged,
    ReportPurged,
    ReviewObject,
)
from streams.pastes.rules import ORPHAN_MS_MIN, TTL_MS_MAX, UPLOAD_MS_MAX
from streams.runtime.decider.testing import START_MS
from tests.pastes.desk import LOCK, PROOF, WRONG, Desk, create, id_for, sha_of, told, upload


def test_a_paste_is_made_and_says_how_it_stands() -> None:
    desk, row = Desk(), create("x = 1", ttl_ms=5_000, lock=LOCK)
    answer = desk.send(row)
    assert (answer.status, told(answer)["id"]) == (201, row.paste)
    assert told(answer)["expiresAt"] == START_MS + 5_000
    (event,) = desk.changes()
    assert (event.object, event.references, event.dropped) == (row.object, 1, "")
    assert (told(answer)["password"], "lock" in told(answer)) == (True, False)


def test_one_content_is_one_object_and_goes_with_its_last_paste() -> None:
    desk = Desk()
    rows = [create(seed=seed, owner=owner) for seed, owner in ((1, "alice"), (2, "bob"))]
    for row in rows:
        desk.send(row)
    first, second = desk.changes()
    assert (second.object, second.references) == (rows[0].object, 2)
    assert second.dropped == rows[1].object
    desk.send(DeletePaste(rows[0].paste, "alice"))
    assert (desk.changes()[-1].dropped, desk.changes()[-1].references) == ("", 1)
    desk.send(DeletePaste(rows[1].paste, "bob"))
    last = desk.changes()[-1]
    assert (last.dropped, last.references) == (rows[0].object, 0)
    again = create(seed=3)
    desk.send(again)
    assert desk.changes()[-1].object == again.object != first.object


def test_a_small_content_is_in_one_event() -> None:
    desk = Desk()
    rows = [create(seed=1, inline=True), create(seed=2, inline=True), create(seed=3)]
    for row in rows:
        desk.send(row)
    assert [one.content for one in desk.changes()] == ["print(1)", None, None]
    assert [one.object for one in desk.changes()] == ["", "", ""]
    assert desk.changes()[-1].dropped == rows[2].object


@pytest.mark.parametrize("more", [{"ttl_ms": 1_000}, {"burn": True}])
def test_what_is_to_vanish_is_not_written_into_the_log(more: dict[str, Any]) -> None:
    answer = Desk().send(create(inline=True, **more))
    assert (answer.status, told(answer)["code"]) == (422, "would_stay")


def test_of_fifty_who_claim_a_paste_the_first_has_it_whatever_crashes() -> None:
    desk, row = Desk(), create(burn=True)
    desk.send(row)
    answers = []
    for n in range(50):
        answers.append(desk.send(ClaimPaste(row.paste, "")))
        if n % 7 == 0:
            desk.crash()
    assert [one.status for one in answers] == [200] + [410] * 49
    assert [one.change for one in desk.changes()] == ["created", "burned"]


def test_a_wrong_password_burns_nothing() -> None:
    desk, row = Desk(), create(burn=True, lock=LOCK)
    desk.send(row)
    for proof in (WRONG, "", PROOF.upper()):
        answer = desk.send(ClaimPaste(row.paste, proof))
        assert (answer.status, told(answer)["code"]) == (403, "wrong_password")
    assert desk.send(ClaimPaste(row.paste, PROOF)).status == 200


def test_only_a_paste_to_be_burned_can_be_claimed() -> None:
    desk, row = Desk(), create()
    desk.send(row)
    assert told(desk.send(ClaimPaste(row.paste, "")))["code"] == "not_to_burn"


def test_a_paste_expires_by_itself_and_then_nothing_can_be_asked_of_it() -> None:
    desk, row = Desk(), create(ttl_ms=5_000, burn=True)
    desk.send(row)
    desk.advance(4_999)
    assert len(desk.changes()) == 1
    desk.advance(1)
    last = desk.changes()[-1]
    assert (last.change, last.ended, last.dropped) == ("expired", "expired", row.object)
    for asked in (ClaimPaste(row.paste, ""), DeletePaste(row.paste, "alice")):
        assert desk.send(asked).status == 410


def test_an_end_comes_once() -> None:
    desk, row = Desk(), create(ttl_ms=5_000)
    desk.send(row)
    assert desk.send(DeletePaste(row.paste, "bob")).status == 403
    assert desk.send(DeletePaste(row.paste, "alice")).status == 200
    assert desk.send(DeletePaste(row.paste, "alice")).status == 410
    desk.advance(10_000)
    assert [one.change for one in desk.changes()] == ["created", "deleted"]


def test_that_a_content_is_gone_is_recorded_once() -> None:
    desk, row = Desk(), create()
    desk.send(row)
    report = ReportPurged(row.paste, row.object)
    assert told(desk.send(report))["code"] == "nothing_to_purge"
    desk.send(DeletePaste(row.paste, "alice"))
    assert told(desk.send(ReportPurged(row.paste, upload(row.id))))["code"] == "nothing_to_purge"
    assert [desk.send(report).status for _ in range(2)] == [200, 409]
    assert [one.change for one in desk.changes()] == ["created", "deleted", "purged"]
    assert desk.changes()[-1].ended == "deleted"


def test_an_object_is_only_dropped_when_nothing_can_come_to_need_it() -> None:
    desk, row = Desk(), create()
    orphan = upload(row.id)
    desk.send(row)
    desk.advance(ORPHAN_MS_MIN - 1)
    assert told(desk.send(ReviewObject(row.id, orphan)))["code"] == "too_young"
    late = create(seed=2, object=orphan)
    assert told(desk.send(late))["code"] == "stale_upload"
    desk.advance(1)
    assert told(desk.send(ReviewObject(row.id, row.object)))["code"] == "in_use"
    assert desk.send(ReviewObject(row.id, orphan)).status == 200
    assert desk.events()[-1] == ObjectDropped(row.id, orphan, START_MS + ORPHAN_MS_MIN)
    assert told(desk.send(ReviewObject(sha_of("other"), orphan)))["code"] == "bad_object"
    assert UPLOAD_MS_MAX < ORPHAN_MS_MIN


@pytest.mark.parametrize(
    ("more", "status", "code"),
    [
        ({"size": CONTENT_BYTES_MAX + 1}, 413, "content_too_large"),
        ({"ttl_ms": 0}, 422, "bad_ttl"),
        ({"ttl_ms": TTL_MS_MAX + 1}, 422, "bad_ttl"),
        ({"object": "", "content": None}, 422, "no_content"),
        ({"content": "print(1)"}, 422, "no_content"),
        ({"object": "elsewhere"}, 422, "bad_object"),
        ({"object": upload(sha_of("other"))}, 422, "bad_object"),
    ],
)
def test_what_makes_no_paste(more: dict[str, Any], status: int, code: str) -> None:
    answer = Desk().send(create(**more))
    assert (answer.status, told(answer)["code"]) == (status, code)


def test_an_id_lies_where_its_content_does_and_is_taken_once() -> None:
    desk, row = Desk(), create()
    desk.send(row)
    assert told(desk.send(row))["code"] == "id_taken"
    texts = [f"text {n}" for n in range(40)]
    asked = [create(text, paste=id_for(sha_of("somewhere"), 1)) for text in texts]
    codes = {told(desk.send(one)).get("code", "") for one in asked}
    assert codes == {"", "bad_id", "id_taken"}


def test_a_key_is_noted_where_it_leads() -> None:
    desk = Desk()
    first = desk.send(NoteKey("k-1"), idempotency_key="alice\nk", fingerprint="a")
    again = desk.send(NoteKey("k-1"), idempotency_key="alice\nk", fingerprint="a")
    other = desk.send(NoteKey("k-1"), idempotency_key="alice\nk", fingerprint="b")
    assert [(one.status, one.replay) for one in (first, again, other)] == [
        (200, False),
        (200, True),
        (422, False),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_exact_over_any_course_with_crashes(seed: int) -> None:
    """Against a count in plain Python: what is needed, what was dropped, and when."""
    chance, desk = random.Random(seed), Desk()
    for n in range(120):
        match chance.randrange(6):
            case 0 | 1 | 2:
                text = f"text {chance.randrange(6)}"
                ttl_ms = chance.choice([None, 2_000, 9_000])
                inline = ttl_ms is None and chance.random() < 0.4
                at_ms = desk.partitions[0].now_ms
                sha256 = sha_of(text)
                stored = "" if inline else upload(sha256, at_ms)
                desk.send(create(text, n, inline=inline, ttl_ms=ttl_ms, object=stored))
            case 3:
                if made := desk.changes():
                    desk.send(DeletePaste(chance.choice(made).id, "alice"))
            case 4:
                desk.advance(chance.randrange(3_000))
            case _:
                desk.crash()
    recounted(desk.changes())
    for one in desk.partitions:
        assert one.replay_digest() == one.digest()


def recounted(changes: list[PasteChanged]) -> None:
    live: defaultdict[str, set[str]] = defaultdict(set)
    places: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for one in changes:
        seen[one.change] += 1
        if one.change == "created":
            if not live[one.sha256]:
                assert one.object not in places.values() or one.object == ""
                places[one.sha256] = one.object
                assert (one.content is None) == bool(one.object)
            assert one.object == places[one.sha256] != one.dropped or one.dropped == ""
            live[one.sha256].add(one.id)
        else:
            live[one.sha256].remove(one.id)
            last = not live[one.sha256]
            assert one.dropped == (places[one.sha256] if last else "")
        assert one.references == len(live[one.sha256])
    assert min(seen[name] for name in ("created", "deleted", "expired")) > 3
