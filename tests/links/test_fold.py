"""Links and clicks as they are stored; a new bot rule counts the past anew, and nothing else."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schemas.links.agents import BOTS, is_bot
from sinks.digest import digest
from sinks.drivers.memory import MemorySink, MemoryStore
from streams.links.fold import KeepClicks
from streams.runtime.projection import Projection
from streams.runtime.sink import ReadModel
from streams.runtime.testing import Harness, assert_replay_deterministic
from tests.links.desk import CLICKS, COPY, PERSON, TABLE, Desk, click, create

DAY_MS = 86_400_000
SCANNER = "Mozilla/5.0 (compatible; LinkScanner/2.1; +https://scan.example)"
AGENTS = [PERSON, SCANNER, "Twitterbot/1.0", "", "Mozilla/5.0 (iPhone; CPU) Mobile/15E148"]


def memory(model: ReadModel) -> MemorySink:
    return MemorySink(model, MemoryStore())


def folded(projection: Projection, rows: list[Any]) -> Harness:
    harness = Harness(projection, memory(projection.model))
    harness.send(*rows)
    harness.run()
    return harness


def links(seed: int) -> list[Any]:
    chance, desk = random.Random(seed), Desk()
    for n in range(40):
        desk.send(create(f"link-{n % 25}", ttl_ms=chance.choice([None, 5_000])))
    for one in desk.partitions:
        one.advance(10_000)
    return desk.events()


def clicks(seed: int) -> list[Any]:
    chance = random.Random(seed)
    return [
        click(
            f"link-{chance.randrange(4)}", n * 60_000, chance.choice(AGENTS),
            method=chance.choice(["GET", "GET", "HEAD"]),
        )
        for n in range(200)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_replay_is_deterministic(seed: int) -> None:
    for projection, rows in ((TABLE, links(seed)), (COPY, links(seed)), (CLICKS, clicks(seed))):
        assert_replay_deterministic(projection, rows, seed, memory)


def test_both_copies_have_the_same_links() -> None:
    table, copy = (folded(one, links(1)).rows("links") for one in (TABLE, COPY))
    assert table.height == 25
    assert table.equals(copy)


def test_a_new_bot_rule_changes_yesterdays_counts_and_no_link() -> None:
    """T: the same logs under both rules."""
    new = replace(CLICKS, fold=KeepClicks(BOTS + "|LinkScanner"))
    before, after = (folded(one, clicks(2)) for one in (CLICKS, new))
    counted = before.counts["applied"], after.counts["applied"]
    scanned = sum(row.user_agent == SCANNER and row.method == "GET" for row in clicks(2))
    assert counted[0] - counted[1] == scanned > 10
    assert before.rows("clicks").drop("fate").equals(after.rows("clicks").drop("fate"))
    assert digest(before.sink, 1) != digest(after.sink, 1)
    first, second = (folded(TABLE, links(2)) for _ in range(2))
    assert digest(first.sink, 1) == digest(second.sink, 1)


def test_heads_are_not_counted_three_a_share_or_none() -> None:
    rows = [click(method="HEAD") for _ in range(3)] + [click()]
    assert folded(CLICKS, rows).counts == {"applied": 1, "filtered": 3}


DEVICES = {
    PERSON: "desktop",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) Chrome/126": "desktop",
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) Chrome/126 Mobile Safari/537.36": "mobile",
    "Mozilla/5.0 (Linux; Android 13; SM-X710) Chrome/126 Safari/537.36": "tablet",
    "Mozilla/5.0 (iPad; CPU OS 17_5) Version/17.5 Mobile/15E148 Safari/604.1": "tablet",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5) Mobile/15E148": "mobile",
    "something else": "other",
}


def test_devices() -> None:
    stored = folded(CLICKS, [click(agent=agent) for agent in DEVICES]).rows("clicks")
    assert dict(stored.select("user_agent", "device").iter_rows()) == DEVICES


@pytest.mark.parametrize(
    "agent",
    ["Googlebot/2.1", "Twitterbot/1.0", "curl/8.5", "", "facebookexternalhit/1.1", "bingbot",
     "Slackbot-LinkExpanding 1.0", "WhatsApp/2.23", "python-requests/2.32"],
)  # fmt: skip
def test_bots_by_what_they_say(agent: str) -> None:
    assert is_bot(agent)
    assert folded(CLICKS, [click(agent=agent)]).counts == {"filtered": 1}


@pytest.mark.parametrize("agent", [PERSON, "Mozilla/5.0 (Linux; Android 12; CUBOT NOTE) Mobile"])
def test_people_are_no_bots(agent: str) -> None:
    assert not is_bot(agent)


def test_python_and_polars_agree_on_who_is_a_bot() -> None:
    agents = [*DEVICES, *AGENTS, "cubot", "x bot y", "robot"]
    stored = folded(CLICKS, [click(agent=agent) for agent in agents]).rows("clicks")
    by_fold = Counter(stored.select("user_agent", "fate").iter_rows())
    assert by_fold == Counter((a, "filtered" if is_bot(a) else "applied") for a in agents)
