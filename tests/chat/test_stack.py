"""Chat through the whole product: sockets that are cut, servers that are killed, a history that is
built anew meanwhile, and who is not there.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing

import pytest

from infra.cli import rebuild
from sinks.open import open_sink
from streams.chat import SYSTEM
from streams.runtime.settings import Settings
from tests import stack
from tests.chaos.proxy import Proxy
from tests.chat.desk import HISTORY
from tests.chat.house import (
    AGENTS,
    House,
    campaigns,
    in_browser,
    people,
    shown,
    transcripts,
)

pytestmark = pytest.mark.stack

CUTS = 1_000 if os.environ.get("CHAOS_FULL") else 100
MESSAGES = 3 * CUTS // 4
"""Of everybody."""
NAMES = [f"p{n}" for n in range(8)]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    with (
        stack.worker(folder, *AGENTS),
        stack.served(folder) as first,
        stack.served(folder) as second,
    ):
        yield House((first, second), folder)


def rebuilt() -> None:
    """The history anew, under load; raises unless it is the same."""
    settings = Settings.read()
    with closing(open_sink(HISTORY.store, HISTORY.model, settings)) as sink:
        rebuild.run(SYSTEM, HISTORY, sink, settings, verify=True)


def test_whatever_is_cut_or_killed_the_transcript_is_the_log(house: House) -> None:
    """T: sockets cut at random, between and within frames; half of the way the server is killed,
    and the history is built anew. No gap, no repeat, nothing unsaid.
    """
    chance = random.Random(7)
    first, second = house.servers
    rooms = [house.room(NAMES[0], *NAMES[1:]) for _ in range(3)]
    proxy = Proxy(first.port, seed=7)
    failed: list[BaseException] = []

    def rebuild_meanwhile() -> None:
        try:
            rebuilt()
        except BaseException as error:
            failed.append(error)

    building = threading.Thread(target=rebuild_meanwhile)
    try:
        with people(house, NAMES, rooms, MESSAGES, proxy.port) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            proxy.set(drop_replies=0.02)
            answers = 0
            for line in node.stdout:
                told = json.loads(line)
                if told.get("done"):
                    break
                if proxy.target == first.port and told["answers"] > len(NAMES) * MESSAGES // 3:
                    first.kill()
                    proxy.target = second.port
                    building.start()
                if told["answers"] == answers:
                    continue  # a slow machine gets on between the cuts, too
                answers = told["answers"]
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
            found = json.loads(node.stdout.readline())["people"]
    finally:
        proxy.close()
    building.join(120)
    assert failed == []
    entries = {room: [shown(entry) for entry in log[room]] for room in rooms}
    for room in rooms:
        assert [entry["seq"] for entry in entries[room]] == list(range(1, len(entries[room]) + 1))
    sent = {e["body"]: e["seq"] for room in rooms for e in entries[room] if e["change"] == "sent"}
    assert len(sent) == len(NAMES) * MESSAGES
    for person in found:
        assert person["told"] == entries
        assert person["acks"].items() <= sent.items()
    assert proxy.target == second.port
    assert sum(person["connections"] for person in found) >= CUTS / 2


def test_history_as_it_reads_now_and_who_may_read_it(house: House) -> None:
    room = house.room("alice", "bob")
    with house.client("alice") as alice, house.client("eve") as eve:
        path = f"/v1/conversations/{room}"
        for n in range(5):
            body = {"clientMsgId": f"m{n}", "body": f"word {n}", "replyTo": n and 1}
            first, again = (alice.post(f"{path}/messages", json=body) for _ in range(2))
            assert first.status_code == 201
            assert (first.json(), again.json()) == (first.json(), first.json())
            assert again.headers["Idempotent-Replay"] == "true"
        other = {"clientMsgId": "m0", "body": "something else"}
        assert alice.post(f"{path}/messages", json=other).status_code == 422
        assert alice.patch(f"{path}/messages/3", json={"body": "better"}).status_code == 200
        assert alice.delete(f"{path}/messages/4").status_code == 200
        last = alice.put(f"{path}/receipts", json={"delivered": 99, "read": 3})
        assert last.json() == {"delivered": 8, "read": 3}
        after = {"Headrace-After": last.headers["Headrace-Position"], "Prefer": "wait=10"}
        page = alice.get(f"{path}/messages", params={"limit": 3}, headers=after).json()
        assert [(m["seq"], m["body"], m["deleted"]) for m in page["messages"]] == [
            (6, "word 4", False), (5, "word 3", False), (4, "", True),
        ]  # fmt: skip
        more = alice.get(f"{path}/messages", params={"before": page["before"]}).json()
        assert [(m["seq"], m["body"], m["edited_seq"]) for m in more["messages"]] == [
            (3, "better", 7), (2, "word 0", 0),
        ]  # fmt: skip
        entries = alice.get(f"{path}/entries", params={"after": 5, "limit": 2}).json()
        assert ([e["seq"] for e in entries["entries"]], entries["more"]) == ([6, 7], True)
        told = alice.get(path).json()
        assert (told["members"], told["last_seq"]) == (["alice", "bob"], 8)
        assert told["marks"] == [{"user_id": "alice", "delivered": 8, "read": 3}]
        assert room in {one["conversation_id"] for one in alice.get("/v1/conversations").json()}
        for hidden in (path, f"{path}/messages", f"{path}/entries"):
            assert eve.get(hidden).status_code == 404
        assert eve.post(f"{path}/messages", json=other).status_code == 404


def test_who_is_not_there_gets_a_notification(house: House) -> None:
    """One open socket, and a group of 500: the others are asked to be notified, once."""
    tag = uuid.uuid4().hex[:8]
    crowd = [f"{tag}-{n:03}" for n in range(499)]
    speaker, present = f"{tag}-speaker", crowd[7]
    room = house.room(speaker, *crowd)
    port = house.servers[-1].port
    with people(house, [present], [room], 0, port) as node, house.client(speaker) as client:
        assert node.stdout is not None
        assert json.loads(node.stdout.readline())["done"]
        until_s = time.monotonic() + 30
        asked = {"user": [present, speaker, crowd[8]]}
        while not (online := client.get("/v1/presence", params=asked).json())[present]:
            assert time.monotonic() < until_s
        assert online == {present: True, speaker: False, crowd[8]: False}
        body = {"clientMsgId": "m1", "body": "is anybody there?"}
        said = client.post(f"/v1/conversations/{room}/messages", json=body).json()
        asked_for = campaigns(f"chat/{room}/{said['seq']}")
    assert len(asked_for) == 1
    assert set(asked_for[0].user_ids) == {*crowd} - {present}
    assert json.loads(asked_for[0].params)["preview"] == "is anybody there?"
    assert asked_for[0].channels == ["push"]


@pytest.mark.skipif(not os.environ.get("BROWSER"), reason="BROWSER=1 fetches one with npm")
def test_the_page_in_a_real_browser(house: House) -> None:
    """Two people in Chromium, under the page's own policy; the browser complains of nothing."""
    tag = uuid.uuid4().hex[:8]
    alice, bob = f"{tag}-alice", f"{tag}-bob"
    found = in_browser(house, alice, bob)
    wanted = [f"{alice}: 2 are here", f"{alice}<b>hello</b>", f"{bob}who is there?"]
    assert found == {"shown": [wanted, wanted], "complaints": []}
