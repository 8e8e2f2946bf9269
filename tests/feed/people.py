"""Random people who post, follow, block, and come back; as events of one log partition."""

from __future__ import annotations

import random
from typing import Any

from schemas.feed.events import FeedOpened, PostPublished, PostRemoved, RelationChanged

NOON_MS = 1_767_268_800_000
HOUR_MS = 3_600_000
CHANGES = ("followed",) * 6 + ("unfollowed",) * 3 + ("muted", "unmuted", "blocked", "unblocked")


def post(author: str, post_id: str, at_ms: int = NOON_MS, text: str = "hello") -> PostPublished:
    return PostPublished(author, post_id, text, None, at_ms)


def relate(user: str, change: Any, author: str, at_ms: int = NOON_MS) -> RelationChanged:
    return RelationChanged(author, user, change, at_ms)


def follow(user: str, author: str, at_ms: int = NOON_MS) -> RelationChanged:
    return relate(user, "followed", author, at_ms)


def opened(user: str, at_ms: int = NOON_MS) -> FeedOpened:
    return FeedOpened("lane", user, at_ms)


def remove(author: str, post_id: str, at_ms: int = NOON_MS) -> PostRemoved:
    return PostRemoved(author, post_id, at_ms)


def life(seed: int, events: int, people: int = 8, apart_ms: int = HOUR_MS) -> list[Any]:
    """Events in which everything happens; times go on and sometimes a little back."""
    chance, told, published = random.Random(seed), list[Any](), list[tuple[str, str]]()
    names = [f"p{n}" for n in range(people)] + ['o"k']
    now_ms = NOON_MS
    for n in range(events):
        now_ms += chance.randrange(apart_ms)
        at_ms = now_ms - chance.choice((0, 0, 0, apart_ms))
        user, author = chance.sample(names, 2)
        match chance.choices(("post", "remove", "relate", "open"), (50, 4, 36, 10))[0]:
            case "post":
                published.append((author, f"{seed}-{n}"))
                told.append(post(author, f"{seed}-{n}", at_ms, f"{author} says {n}"))
            case "remove" if published:
                gone = published.pop(chance.randrange(len(published)))
                told.append(remove(*gone, at_ms))
            case "open":
                told.append(opened(user, at_ms))
            case _:
                told.append(relate(user, chance.choice(CHANGES), author, at_ms))
    return told
