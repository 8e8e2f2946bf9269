"""The rules: who gets what, order, rotation, being disabled, recovery. No broker."""

from __future__ import annotations

import random
from typing import Any

from schemas.webhooks import events
from streams.runtime.decider.testing import DeciderHarness
from streams.webhooks import DECIDER
from streams.webhooks.folding import DAY_MS
from streams.webhooks.rules import ENDPOINTS_MAX
from streams.webhooks.state import FAILING, LANES, WAITING

HOUR_MS = 3_600_000
OLD, NEW = "whsec_b2xkb2xkb2xkb2xkb2xkb2xk", "whsec_bmV3bmV3bmV3bmV3bmV3bmV3"


def save(id_: str = "e1", **more: Any) -> events.SaveEndpoint:
    told = {"create": True, "url": f"https://{id_}.example.org/", "event_types": [],
            "ordered": False, "rate_per_s": 0, "description": "", "secret": OLD}  # fmt: skip
    return events.SaveEndpoint(tenant_id="t", endpoint_id=id_, **(told | more))


def publish(id_: str, event_type: str = "a.b", order_key: str = "") -> events.PublishMessage:
    return events.PublishMessage("t", id_, event_type, order_key, "{}")


def report(
    planned: events.PlannedDelivery, status: Any = "delivered", *, final: bool = True
) -> events.ReportAttempt:
    return events.ReportAttempt(
        tenant_id="t",
        endpoint_id=planned["endpoint_id"],
        delivery_id=planned["delivery_id"],
        message_id=planned["message_id"],
        sequence=planned["sequence"],
        order_key=planned["order_key"],
        attempt=1,
        status=status,
        final=final,
        http_status=0,
        detail="",
        duration_ms=0,
    )


def harness(*endpoints: events.SaveEndpoint) -> DeciderHarness:
    made = DeciderHarness(DECIDER)
    for one in endpoints:
        assert made.send(one).status == 201
    return made


def test_a_message_goes_to_the_endpoints_that_want_it_and_numbers_have_no_gaps() -> None:
    h = harness(save("all"), save("below", event_types=["a.*"]), save("one", event_types=["a.c"]))
    h.send(events.SetEndpointEnabled("t", "all", enabled=False))
    wanted = {"a.b": ["below"], "a.c": ["below", "one"], "a": [], "ab.c": []}
    for n, (event_type, endpoints) in enumerate(wanted.items()):
        answer = h.send(publish(f"m{n}", event_type))
        assert answer.status == 202
        event = h.events[-1]
        assert event.sequence == n
        assert [one["endpoint_id"] for one in event.deliveries] == endpoints
        assert {one["message_id"] for one in event.deliveries} <= {f"m{n}"}


def test_the_same_key_publishes_once() -> None:
    h = harness(save())
    one, two = (h.send(publish("m1"), idempotency_key="k") for _ in range(2))
    assert (one.body, two.replay) == (two.body, True)
    assert sum(isinstance(e, events.MessagePublished) for e in h.events) == 1


def test_of_a_lane_one_delivery_is_on_its_way_and_its_end_lets_the_next_one_go() -> None:
    h = harness(save(ordered=True), save("free"))
    for n in range(4):
        h.send(publish(f"m{n}", order_key="k" if n != 2 else "other"))
    published = [e for e in h.events if isinstance(e, events.MessagePublished)]
    mine = [[o["message_id"] for o in e.deliveries if o["endpoint_id"] == "e1"] for e in published]
    assert mine == [["m0"], [], ["m2"], []]
    assert all("free" in [o["endpoint_id"] for o in e.deliveries] for e in published)
    head = published[0].deliveries[0]
    h.send(report(head, "failed", final=False))
    assert h.events[-1].deliveries == []
    h.send(report(head))
    (after,) = h.events[-1].deliveries
    assert after["message_id"] == "m1"
    h.send(report(head))  # told twice: the lane does not move
    assert h.events[-1].deliveries == []
    h.send(report(after, "failed"))  # given up: the next one goes
    (last,) = h.events[-1].deliveries
    assert last["message_id"] == "m3"
    h.send(report(last))
    assert [key[2] for key, _ in h.state[LANES].items()] == ["other"]
    assert len(h.state[WAITING]) == 1
    assert h.replay_digest() == h.digest()


def test_a_rotated_secret_is_used_until_its_overlap_is_over() -> None:
    h = harness(save())
    assert h.send(events.RotateSecret("t", "e1", OLD, 0)).status == 422
    h.send(events.RotateSecret("t", "e1", NEW, HOUR_MS))
    ends = h.now_ms + HOUR_MS
    assert h.events[-1].secrets == [
        {"secret": NEW, "expires_ms": None},
        {"secret": OLD, "expires_ms": ends},
    ]
    third = "whsec_dGhpcmR0aGlyZHRoaXJkdGhpcmQh"
    h.send(events.RotateSecret("t", "e1", third, DAY_MS))
    assert h.events[-1].secrets[2] == {"secret": OLD, "expires_ms": ends}  # none lives longer
    h.advance(HOUR_MS)
    h.send(events.RotateSecret("t", "e1", "whsec_Zm91cmZvdXJmb3VyZm91cmZvdXI=", DAY_MS))
    assert OLD not in [one["secret"] for one in h.events[-1].secrets]


def fail_for(h: DeciderHarness, ms: int, every_ms: int) -> None:
    planned = h.events[1].deliveries[0]
    for _ in range(ms // every_ms + 1):
        h.send(report(planned, "failed", final=False))
        h.advance(every_ms)


def test_five_days_without_a_success_disable_an_endpoint_and_that_is_an_event() -> None:
    h = harness(save())
    h.send(publish("m1"))
    fail_for(h, 5 * DAY_MS - 6 * HOUR_MS, 6 * HOUR_MS)
    assert not any(getattr(e, "disabled", "") for e in h.events)
    h.send(report(h.events[1].deliveries[0], "failed", final=False))
    h.advance(1)
    disabled = h.events[-1]
    assert isinstance(disabled, events.EndpointSaved)
    assert (disabled.change, disabled.disabled) == ("disabled", "failing")
    h.send(publish("m2"))
    assert h.events[-1].deliveries == []
    assert h.send(events.SetEndpointEnabled("t", "e1", enabled=True)).status == 200
    assert len(h.state[FAILING]) == 0
    assert h.replay_digest() == h.digest()


def test_a_success_or_a_silent_day_begins_a_new_story() -> None:
    for between in ("success", "silence"):
        h = harness(save())
        h.send(publish("m1"))
        fail_for(h, 4 * DAY_MS, 6 * HOUR_MS)
        if between == "success":
            h.send(report(h.events[1].deliveries[0]))
        else:
            h.advance(2 * DAY_MS)
        fail_for(h, 4 * DAY_MS, 6 * HOUR_MS)
        assert not any(getattr(e, "disabled", "") for e in h.events), between


def test_gone_disables_at_once_and_skipped_says_nothing() -> None:
    h = harness(save())
    h.send(publish("m1"))
    planned = h.events[-1].deliveries[0]
    h.send(report(planned, "skipped"))
    assert len(h.state[FAILING]) == 0
    h.send(report(planned, "gone"))
    h.advance(1)
    assert h.events[-1].disabled == "gone"


def test_a_lane_of_a_deleted_endpoint_runs_empty() -> None:
    h = harness(save(ordered=True))
    for n in range(3):
        h.send(publish(f"m{n}", order_key="k"))
    planned = h.events[1].deliveries[0]
    assert h.send(events.DeleteEndpoint("t", "e1")).status == 200
    while planned:
        h.send(report(planned, "skipped"))
        planned = next(iter(h.events[-1].deliveries), None)
    assert (len(h.state[LANES]), len(h.state[WAITING])) == (0, 0)
    assert h.send(save()).status == 201
    assert h.events[-1].revision > h.events[-5].revision


def test_a_recovery_goes_from_the_hour_of_its_time_to_the_message_before_it() -> None:
    h = harness(save())
    for n in range(6):
        h.send(publish(f"m{n}"))
        h.advance(HOUR_MS // 2)
    since = h.now_ms - 2 * HOUR_MS
    answer = h.send(events.RecoverMessages("t", "e1", "r", since))
    assert answer.status == 202
    event = h.events[-1]
    published = [e for e in h.events if isinstance(e, events.MessagePublished)]
    missed = [e.sequence for e in published if e.event_time >= since]
    assert event.next_sequence <= missed[0]
    assert event.next_sequence >= missed[0] - 2
    assert event.until_sequence == 6


def test_what_is_resent_keeps_its_message_id_and_its_order() -> None:
    h = harness(save(ordered=True))
    again = [{"message_id": f"m{n}", "sequence": n, "event_type": "a", "order_key": "k"}
             for n in range(3)]  # fmt: skip
    h.send(events.ResendMessages("t", "e1", "r", again, None, 0, 0))
    event = h.events[-1]
    assert [o["message_id"] for o in event.deliveries] == ["m0"]
    assert [o["message_id"] for o in event.queued] == ["m1", "m2"]
    assert event.deliveries[0]["delivery_id"] == "m0/e1/r"


def test_what_cannot_be_is_refused_with_a_reason() -> None:
    h = harness(save())
    assert h.send(save()).status == 409
    assert h.send(save("e2", create=False)).status == 404
    assert h.send(events.DeleteEndpoint("t", "nobody")).status == 404
    h.send(events.SetEndpointEnabled("t", "e1", enabled=False))
    for row in (events.RecoverMessages("t", "e1", "r", 0),
                events.ResendMessages("t", "e1", "r", [], None, 0, 0)):  # fmt: skip
        assert h.send(row).status == 409
    for n in range(ENDPOINTS_MAX - 1):
        assert h.send(save(f"n{n}")).status == 201
    assert h.send(save("more")).status == 409


def test_random_lanes_keep_their_order_lose_nothing_and_replay_alike() -> None:
    for seed in range(6):
        chance = random.Random(seed)
        h = harness(save(ordered=True), save("b", ordered=True))
        running: list[events.PlannedDelivery] = []
        ended: dict[tuple[str, str], list[str]] = {}
        wanted: dict[tuple[str, str], list[str]] = {}
        for n in range(60):
            if chance.random() < 0.5 or not running:
                key = chance.choice("xyz")
                h.send(publish(f"m{n}", order_key=key))
                for id_ in ("e1", "b"):
                    wanted.setdefault((id_, key), []).append(f"m{n}")
            else:
                one = running.pop(chance.randrange(len(running)))
                h.send(report(one, chance.choice(["delivered", "failed"])))
                ended.setdefault((one["endpoint_id"], one["order_key"]), []).append(
                    one["message_id"]
                )
            running += h.events[-1].deliveries
            lanes = [(one["endpoint_id"], one["order_key"]) for one in running]
            assert len(lanes) == len(set(lanes))
            if chance.random() < 0.1:
                h.crash()
        while running:
            one = running.pop()
            h.send(report(one))
            ended.setdefault((one["endpoint_id"], one["order_key"]), []).append(one["message_id"])
            running += h.events[-1].deliveries
        assert ended == wanted
        assert h.replay_digest() == h.digest()
