"""T of the system, on a clock by hand: an hour down, an order key, and what the receiver sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas.webhooks import events
from tests.webhooks.test_rules import HOUR_MS, save
from tests.webhooks.world import World

DOWN, FREE = "https://down.example.org/", "https://free.example.org/"
MINUTE_MS = 60_000


def publish(n: int, order_key: str) -> events.PublishMessage:
    return events.PublishMessage("t", f"m{n}", "a.b", order_key, f'{{"n":{n}}}')


async def test_after_an_hour_down_a_key_is_in_order_whole_and_repeats_are_known() -> None:
    world = World()
    up_ms = world.now_ms + HOUR_MS
    world.hooks = {
        DOWN: lambda *_: 200 if world.now_ms >= up_ms else 503,
        FREE: lambda *_: 200,
    }
    world.decider.send(save("down", ordered=True))
    world.decider.send(save("free"))
    published: dict[str, list[str]] = {"x": [], "y": [], "": []}
    for n in range(30):
        key = ("x", "y", "")[n % 3]
        world.decider.send(publish(n, key))
        published[key].append(f"m{n}")
        world.fold()
        await world.settle()
        assert world.ids(FREE) == [f"m{m}" for m in range(n + 1)], "nobody waits for the other"
        await world.advance(2 * MINUTE_MS)
    assert world.now_ms == up_ms
    tried = world.ids(DOWN)
    assert set(tried) & set(published["x"] + published["y"]) == {"m0", "m1"}, "a key waits"
    await world.advance(36 * HOUR_MS, step_ms=10 * MINUTE_MS)
    seen = world.ids(DOWN)
    firsts = list(dict.fromkeys(seen))
    for key in ("x", "y"):
        assert [id_ for id_ in firsts if id_ in published[key]] == published[key]
    assert set(firsts) == {f"m{n}" for n in range(30)}
    assert len(seen) > len(firsts), "it was tried while it was down"
    page, _ = await world.reader.deliveries("t", "down", None, 100)
    assert {one.status for one in page} == {"delivered"}
    assert world.decider.replay_digest() == world.decider.digest()


async def test_what_was_missed_while_disabled_is_recovered_once_and_whole() -> None:
    world = World()
    world.hooks = {DOWN: lambda *_: 500, FREE: lambda *_: 200}
    world.decider.send(save("down"))
    world.decider.send(save("free"))
    world.decider.send(publish(0, ""))
    world.fold()
    await world.settle()
    since = world.now_ms
    for n in range(1, 25):
        await world.advance(6 * HOUR_MS, step_ms=HOUR_MS)
        world.decider.send(publish(n, ""))
        world.fold()
        await world.settle()
    told = await world.reader.endpoint("t", "down")
    assert told is not None
    assert told.disabled == "failing", "five days without a success"
    missed = {f"m{n}" for n in range(25)}
    world.hooks[DOWN] = lambda *_: 200
    world.decider.send(events.SetEndpointEnabled("t", "down", enabled=True))
    before = len(world.ids(DOWN))
    world.decider.send(events.RecoverMessages("t", "down", "r1", since))
    world.fold()
    await world.settle()
    await world.advance(36 * HOUR_MS, step_ms=HOUR_MS)
    again = world.ids(DOWN)[before:]
    assert set(again) == missed
    world.decider.send(events.RecoverMessages("t", "down", "r2", since))
    world.fold()
    await world.settle()
    assert len(world.ids(DOWN)) == before + len(again), "what is delivered is not recovered"


async def test_a_receiver_can_check_every_call_with_the_body_it_gets() -> None:
    seen: list[tuple[dict[str, str], bytes]] = []

    def hear(headers: Mapping[str, str], body: bytes) -> int:
        seen.append((dict(headers), body))
        return 200

    world = World(hooks={FREE: hear})
    world.decider.send(save("free"))
    world.decider.send(publish(7, ""))
    world.fold()
    await world.settle()
    ((headers, body),) = seen
    told: Any = headers["webhook-id"], body
    assert told == ("m7", b'{"n":7}')
