"""Sockets take up a conversation anywhere, at any time, and are told each entry once, in order."""

from __future__ import annotations

import asyncio

import pytest

from api.routes.chat import hub as hubs
from api.routes.chat.line import AGAIN, CHARS_MAX, ENDING, FRAMES_MAX, SILENT, SLOW, Line
from connectors.asking import Refused
from streams.runtime.sink import SinkUnavailable
from tests.chat.desk import ROOM
from tests.chat.world import Client, World, a_while, until

PEOPLE = ["alice", "bob", "carol"]


def begun(seed: int = 0, words: int = 0) -> World:
    world = World(seed)
    world.desk.start(*PEOPLE)
    for n in range(words):
        world.desk.say("bob", f"word {n}")
    world.write()
    return world


@pytest.mark.parametrize("seed", range(12))
async def test_no_gap_and_no_repeat_however_log_history_and_sockets_fall(seed: int) -> None:
    world = begun(seed)
    world.fold(1)
    chance = world.chance
    world.loose = seed % 2 == 0
    clients = [Client(world, user) for user in PEOPLE]
    for n in range(150):
        match chance.randrange(7):
            case 0 | 1:
                world.desk.say("bob", f"word {n}")
                world.write()
            case 2:
                world.fold(chance.randrange(4))
            case 3:
                world.bring(chance.randrange(4))
            case 4:
                world.desk.mark("alice", n)
                world.write()
            case 5:
                client = chance.choice(clients)
                await client.go()
                await client.come()
            case 6:
                await asyncio.sleep(0.001 * chance.randrange(8))
    world.catch_up()
    for client in clients:
        if client.line is None or client.line.code:
            await client.go()
            await client.come()
    last = world.desk.entries[-1].seq
    await until(lambda: all(len(one.seqs) >= last for one in clients))
    await a_while()
    for client in clients:
        assert client.seqs == list(range(1, last + 1))
        assert client.failure is None
        await client.go()
    await world.hub.close()


async def test_what_the_log_brings_meanwhile_waits_for_the_history() -> None:
    world = begun(words=5)
    world.fold(3)
    early = Client(world, "alice")
    await early.come()
    await until(lambda: early.of("live"))
    world.bring()
    late = Client(world, "bob")
    await late.come()
    await a_while()
    assert late.seqs == []  # the log has brought more than the history has
    world.fold()
    await until(lambda: late.of("live"))
    await until(lambda: len(early.seqs) == len(late.seqs) == 6)
    assert late.seqs == early.seqs == [1, 2, 3, 4, 5, 6]
    assert late.of("live")[0]["seq"] == 6
    for one in (early, late):
        await one.go()
    await world.hub.close()


async def test_a_long_history_goes_out_at_the_pace_of_its_reader() -> None:
    world = begun(words=4 * FRAMES_MAX)
    world.fold()
    client = Client(world, "bob")
    line = await client.come(100)
    await until(lambda: client.of("live"))
    assert line.code == 0
    assert client.seqs == list(range(101, 4 * FRAMES_MAX + 2))
    await client.go()
    await world.hub.close()


async def test_only_what_comes_if_nothing_else_is_asked_for() -> None:
    world = begun(words=3)
    world.catch_up()
    client = Client(world, "bob")
    await client.come(None)
    await until(lambda: client.of("live"))
    world.desk.say("alice", "new")
    world.catch_up()
    await until(lambda: client.seqs)
    assert client.seqs == [5]
    await client.go()
    await world.hub.close()


async def test_who_has_just_written_finds_it() -> None:
    world = begun(words=2)
    client = Client(world, "bob")
    await client.come(0, written=2)
    await a_while()
    assert (client.failure, client.seqs) == (None, [])  # neither log nor history has it yet
    world.fold()
    await until(lambda: client.of("live"))
    assert client.seqs == [1, 2, 3]
    await client.go()
    await world.hub.close()


async def test_a_history_that_does_not_get_there_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "HISTORY_WAIT_S", 0.05)
    world = begun(words=3)
    client = Client(world, "bob")
    await client.come()
    await until(lambda: client.failure)
    assert isinstance(client.failure, Refused)  # there is no conversation yet
    world.bring()
    await client.go()
    client.failure = None
    await client.come()
    await until(lambda: client.failure)
    assert isinstance(client.failure, SinkUnavailable)
    await client.go()
    world.fold()
    client.failure = None
    await client.come(10**6)
    await until(lambda: client.failure)
    assert isinstance(client.failure, Refused)
    assert client.failure.code == "no_such_entry"
    await client.go()
    await world.hub.close()


async def test_a_slow_client_is_cut_and_costs_nobody_else() -> None:
    world = begun()
    world.catch_up()
    quick = Client(world, "alice")
    await quick.come()
    await until(lambda: quick.of("live"))
    slow = Client(world, "bob")
    line = await slow.come()
    await until(lambda: slow.of("live"))
    slow.stall()
    for n in range(FRAMES_MAX + 10):
        world.desk.say("carol", f"word {n}")
    world.write()
    for _ in world.log[world.brought :]:
        world.bring(1)
        await asyncio.sleep(0)
    await until(lambda: len(quick.seqs) == FRAMES_MAX + 11)
    assert line.code == SLOW
    for one in (quick, slow):
        await one.go()
    await world.hub.close()


def test_what_waits_for_a_client_has_a_bound_in_size_too() -> None:
    line = Line("bob", "s", 0.0, lambda: None)
    line.offer("x" * (CHARS_MAX - 1))
    assert line.code == 0
    line.offer("xx")
    assert line.code == SLOW


async def test_frames_that_wait_go_out_together() -> None:
    line = Line("bob", "s", 0.0, lambda: None)
    for n in range(3):
        line.offer(str(n))
    assert await line.next() == "0\n1\n2"
    line.offer("3")
    assert await line.next() == "3"


async def test_members_who_come_and_go_are_told_and_strangers_are_not() -> None:
    world = begun(words=1)
    world.catch_up()
    bob, dave = Client(world, "bob"), Client(world, "dave")
    await bob.come()
    await dave.come()
    await until(lambda: bob.of("live") and dave.failure)
    assert isinstance(dave.failure, Refused)
    world.desk.members("alice", add=["dave"])
    world.catch_up()
    await until(lambda: dave.of("joined"))
    assert dave.of("joined")[0]["conversationId"] == ROOM
    world.desk.members("alice", remove=["bob"])
    world.desk.say("alice", "without bob")
    world.catch_up()
    await until(lambda: bob.of("left"))
    await a_while()
    assert bob.seqs == [1, 2, 3, 4]
    assert [frame["type"] for frame in bob.frames[-2:]] == ["entry", "left"]
    for one in (bob, dave):
        await one.go()
    await world.hub.close()


async def test_receipts_and_typing_reach_the_others() -> None:
    world = begun(words=1)
    world.catch_up()
    clients = [Client(world, user) for user in PEOPLE]
    for one in clients:
        await one.come()
    await until(lambda: all(one.of("live") for one in clients))
    alice, bob, _ = clients
    assert alice.line is not None
    await world.hub.typing(alice.line, ROOM)
    world.desk.mark("bob", 2, 1)
    world.catch_up()
    await until(lambda: alice.of("receipt") and bob.of("typing"))
    assert (alice.of("typing"), len(bob.of("typing"))) == ([], 1)
    assert [(r["userId"], r["delivered"], r["read"]) for r in alice.of("receipt")] == [
        ("bob", 2, 1)
    ]
    late = Client(world, "carol")
    await late.come()
    await until(lambda: late.of("live"))
    assert late.of("live")[0]["marks"] == [{"userId": "bob", "delivered": 2, "read": 1}]
    for one in (*clients, late):
        await one.go()
    await world.hub.close()


async def test_sessions_are_there_while_their_sockets_are_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "BEAT_S", 0.01)
    monkeypatch.setattr(hubs, "SILENT_S", 0.05)
    world = begun()
    world.catch_up()
    line = await world.hub.join("bob", lambda: None)
    assert world.beats == [("bob", line.session)]
    await until(lambda: line.code)
    assert line.code == SILENT
    await world.hub.part(line)
    assert world.beats == []
    await world.hub.close()


async def test_a_user_has_so_many_sockets_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "LINES_MAX", 2)
    world = begun()
    lines = [await world.hub.join("bob", lambda: None) for _ in range(2)]
    with pytest.raises(Refused, match="at most 2 sockets"):
        await world.hub.join("bob", lambda: None)
    await world.hub.part(lines[0])
    lines[0] = await world.hub.join("bob", lambda: None)
    await world.hub.close()
    assert [line.code for line in lines] == [ENDING, ENDING]


async def test_a_follower_that_fails_is_begun_anew_and_everybody_takes_up_again() -> None:
    world = begun(words=2)
    world.catch_up()
    client = Client(world, "bob")
    line = await client.come()
    await until(lambda: client.of("live"))
    world.failed(RuntimeError("the log is away"))
    assert line.code == AGAIN
    await client.go()
    world.desk.say("alice", "meanwhile")
    world.write()
    world.fold()
    await client.come()
    await until(lambda: len(client.seqs) == 4)
    assert world.tails == 2
    assert client.seqs == [1, 2, 3, 4]
    await client.go()
    await world.hub.close()
