"""Digests: one a window, with one id and one content, whatever is delivered again."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.notifications import events as e
from streams.notifications.digests import GRACE_MS, ITEMS_MAX
from tests.notifications.desk import DAY, HOUR, MINUTE, Desk, T, desk, send, sent


def item(n: int, at: int, **fields: Any) -> e.SendNotification:
    made = {"digest_key": "likes", "digest_window_ms": HOUR, "params": json.dumps({"n": n})}
    return send(f"n-{n}", happened_at=at, **(made | fields))


def closed(at: Desk) -> list[e.DigestClosed]:
    at.pass_to(at.now + 3 * DAY)
    return list(at.events(e.DigestClosed))


def test_what_happens_in_a_window_is_sent_once_at_its_end() -> None:
    at = desk()
    first = at.ask(item(1, T + MINUTE), T + MINUTE)
    at.ask(item(2, T + 2 * MINUTE), T + 30 * MINUTE)
    at.ask(item(3, T + HOUR - 1), T + HOUR + GRACE_MS - 1)  # late, within the grace
    at.ask(item(4, T + HOUR), T + HOUR + GRACE_MS - 1)  # the next window
    assert (first.disposition, first.due_at) == ("digested", T + HOUR + GRACE_MS)
    one, two = closed(at)
    assert one.notification_id == first.digest_id
    assert one.items == ["n-1", "n-2", "n-3"]
    assert one.event_time == first.due_at
    assert sent(one) == [("email", "u@example.org")]
    assert json.loads(one.params)["items"] == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert two.items == ["n-4"]


def test_a_late_item_never_leads_to_a_second_digest_of_its_window() -> None:
    at = desk()
    at.ask(item(1, T), T)
    at.pass_to(T + HOUR + GRACE_MS)
    late = at.ask(item(2, T + 1), T + HOUR + GRACE_MS)
    assert late.due_at == T + 2 * HOUR + GRACE_MS
    one, two = closed(at)
    assert (one.items, two.items) == (["n-1"], ["n-2"])
    assert one.notification_id != two.notification_id


def test_a_window_closed_by_a_clock_ahead_of_the_logs_stays_closed() -> None:
    at = desk()
    at.ask(item(1, T), T)
    at.pass_to(T + HOUR + GRACE_MS)
    at.now = T + HOUR  # the log's clock is behind the writer's
    after = at.ask(item(2, T + 1))
    assert after.due_at == T + 2 * HOUR + GRACE_MS
    assert len({one.notification_id for one in closed(at)}) == 2


def test_opt_outs_and_quiet_hours_hold_for_digests() -> None:
    at = desk(quiet_scope="transactional")
    night = T + 22 * HOUR
    at.ask(item(1, night), night)
    (digest,) = closed(at)
    (resumed,) = at.events(e.NotificationResumed)
    assert digest.disposition == "held"
    assert (resumed.notification_id, resumed.params) == (digest.notification_id, digest.params)
    assert sent(resumed) == [("email", "u@example.org")]


def test_a_large_digest_shows_some_and_counts_all() -> None:
    at = desk()
    for n in range(ITEMS_MAX + 7):
        at.ask(item(n, T), T)
    (digest,) = closed(at)
    told = json.loads(digest.params)
    assert (told["count"], len(told["items"]), told["more"]) == (ITEMS_MAX + 7, ITEMS_MAX, 7)


def test_keys_and_window_lengths_do_not_mix() -> None:
    at = desk()
    at.ask(item(1, T))
    at.ask(item(2, T, digest_key="follows"))
    at.ask(item(3, T, digest_window_ms=2 * HOUR))
    at.ask(send("n-4", user="v", digest_key="likes", digest_window_ms=HOUR))
    assert sorted(one.items for one in closed(at)) == [["n-1"], ["n-2"], ["n-3"], ["n-4"]]


@given(st.integers(0, 10_000))
def test_delivering_everything_again_changes_no_digest(seed: int) -> None:
    """Each item comes up to four times, also after its window; ids and contents stay."""
    chance = random.Random(seed)
    items = [item(n, T + chance.randrange(3 * HOUR), idempotency_key=f"k-{n}") for n in range(12)]
    items.sort(key=lambda one: one.happened_at)
    once, often = desk(), desk()
    for one in items:
        once.ask(one, one.happened_at)
        for _ in range(chance.randint(1, 3)):
            again = chance.choice([one, *items[: items.index(one)]])
            often.ask(one, one.happened_at)
            often.ask(again, one.happened_at)
    expected = closed(once)
    assert closed(often) == expected
    assert sum(len(digest.items) for digest in expected) == 12
    assert len({digest.notification_id for digest in expected}) == len(expected)
    assert often.replayed().tables == often.state.tables
