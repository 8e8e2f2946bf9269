"""Chat through the whole product: sockets that are cut, history, presence, and a kill."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator

import pytest

from tests import stack
from tests.chaos.proxy import Proxy
from tests.chat.house import AGENTS, House, people, shown, transcripts

pytestmark = [pytest.mark.stack, pytest.mark.timeout(300)]

CUTS = 1_000 if os.environ.get("CHAOS_FULL") else 100
NAMES = [f"p{n}" for n in range(8)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with stack.worker(folder, *AGENTS), stack.served(folder) as url:
        yield House(url, folder)


def test_whatever_is_cut_the_transcript_is_the_log(house: House) -> None:
    """T: sockets cut at random, between and within frames; no gap, no repeat, nothing unsaid."""
    chance = random.Random(7)
    proxy = Proxy(int(house.url.rsplit(":", 1)[1]), seed=7)
    rooms = [house.room(NAMES[0], *NAMES[1:]) for _ in range(3)]
    try:
        with people(house, NAMES, rooms, 3 * CUTS // 4, proxy.port) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            proxy.set(drop_replies=0.02)
            for line in node.stdout:
                if json.loads(line).get("done"):
                    break
                for _ in range(3):
                    proxy.cut()
                    time.sleep(chance.random() / 20)
            while proxy.seen["cut"] + proxy.seen["dropped"] < CUTS:
                proxy.cut()
                time.sleep(chance.random() / 20)
            proxy.heal()
            log = transcripts(rooms)
            node.stdin.write(json.dumps({room: len(log[room]) for room in rooms}) + "\n")
            node.stdin.flush()
            told = json.loads(node.stdout.readline())["people"]
    finally:
        proxy.close()
    entries = {room: [shown(entry) for entry in log[room]] for room in rooms}
    for room in rooms:
        assert [entry["seq"] for entry in entries[room]] == list(range(1, len(entries[room]) + 1))
    sent = {e["body"]: e["seq"] for room in rooms for e in entries[room] if e["change"] == "sent"}
    assert len(sent) == len(NAMES) * (3 * CUTS // 4)
    for person in told:
        assert person["told"] == entries
        assert person["acks"].items() <= sent.items()
    assert sum(person["connections"] for person in told) >= CUTS / 2
