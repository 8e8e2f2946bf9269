"""What the decider of posts and relations accepts and refuses."""

from __future__ import annotations

from typing import Any

import msgspec

from schemas.feed.events import ChangeRelation, OpenFeed, PublishPost, RemovePost
from streams.feed import SYSTEM
from streams.runtime.decider.testing import DeciderHarness
from tests.feed.people import NOON_MS, follow, opened, post, remove

(DECIDER,) = SYSTEM.deciders


def publish(author: str = "ann", post_id: str = "1") -> PublishPost:
    return PublishPost(author, post_id, "hello", None, NOON_MS)


def told(answer: Any) -> Any:
    return msgspec.json.decode(answer.body)


def test_a_post_is_published_once() -> None:
    desk = DeciderHarness(DECIDER)
    first = desk.send(publish(), idempotency_key="k")
    assert (first.status, told(first)["postId"]) == (201, "1")
    assert desk.send(publish(), idempotency_key="k").replay
    again = desk.send(publish())
    assert (again.status, told(again)["code"]) == (409, "post_exists")


def test_only_who_wrote_a_post_takes_it_away_and_only_once() -> None:
    desk = DeciderHarness(DECIDER)
    desk.send(publish())
    statuses = [
        desk.send(RemovePost(author, "1", NOON_MS)).status for author in ("bob", "ann", "ann")
    ]
    assert statuses == [404, 200, 404]
    assert desk.send(publish()).status == 201


def test_nobody_follows_mutes_or_blocks_themselves() -> None:
    desk = DeciderHarness(DECIDER)
    answer = desk.send(ChangeRelation("ann", "ann", "followed", NOON_MS))
    assert (answer.status, told(answer)["code"]) == (422, "yourself")
    done = desk.send(ChangeRelation("ann", "bob", "blocked", NOON_MS))
    assert told(done) == {"author": "ann", "user": "bob", "change": "blocked"}


def test_events_say_what_was_asked() -> None:
    desk = DeciderHarness(DECIDER)
    desk.send(publish())
    desk.send(RemovePost("ann", "1", NOON_MS))
    desk.send(ChangeRelation("ann", "bob", "followed", NOON_MS))
    desk.send(OpenFeed("lane", "bob", NOON_MS))
    assert desk.events == [
        post("ann", "1"),
        remove("ann", "1"),
        follow("bob", "ann"),
        opened("bob"),
    ]


def test_after_a_crash_it_is_known_whose_posts_they_are() -> None:
    desk = DeciderHarness(DECIDER)
    desk.send(publish())
    desk.crash()
    assert desk.send(RemovePost("bob", "1", NOON_MS)).status == 404
    assert desk.send(RemovePost("ann", "1", NOON_MS)).status == 200
    assert desk.replay_digest() == desk.digest()
