"""What is decided about notifications: addresses, preferences in force, keys, schedules."""

from __future__ import annotations

import pytest

from schemas.notifications import events as e
from streams.notifications.folding import DEVICES_MAX, KEY_MS
from tests.notifications.desk import DAY, HOUR, MINUTE, Desk, T, desk, send, sent, wants

NIGHT = T + 22 * HOUR
"""23:00 in Berlin."""


def test_a_notification_goes_to_every_address_of_its_channels() -> None:
    at = desk()
    at.ask(e.RegisterDevice("u", "tok-2", "ios"))
    event = at.ask(send(channels=["push", "email", "push"]))
    assert sent(event) == [("push", "tok-u"), ("push", "tok-2"), ("email", "u@example.org")]
    ids = [one["delivery_id"] for one in event.deliveries]
    assert len(set(ids)) == 3
    assert all(i.startswith("n-1/") and "tok" not in i for i in ids)
    assert at.reply().status == 202
    assert at.reply().body == {"id": "n-1", "status": "released"}


def test_without_address_or_consent_it_says_why() -> None:
    at = Desk()
    at.ask(e.SetContact("u", "", "+4915"))
    at.ask(wants(opt_outs=[e.OptOut(channel="sms", category="order_shipped")]))
    event = at.ask(send(channels=["email", "sms"]))
    assert (event.disposition, event.deliveries) == ("suppressed", [])
    assert event.suppressed == [
        {"channel": "email", "reason": "no_address"},
        {"channel": "sms", "reason": "opted_out"},
    ]


def test_a_code_is_sent_against_all_opt_outs_and_at_night() -> None:
    at = desk(opt_outs=[e.OptOut(channel="*", category="*")], quiet_scope="transactional")
    assert sent(at.ask(send(priority="otp", channels=["sms"]), NIGHT)) == [("sms", "+491511234567")]
    assert at.ask(send("n-2"), NIGHT).disposition == "suppressed"


def test_what_quiet_hours_hold_is_decided_again_in_the_morning() -> None:
    at = desk(quiet_scope="marketing")
    held = at.ask(send(priority="marketing"), NIGHT)
    assert (held.disposition, held.deliveries, held.preferences_revision) == ("held", [], 1)
    at.ask(wants(opt_outs=[e.OptOut(channel="email", category="*")]))
    at.pass_to(T + DAY + 12 * HOUR)
    (resumed,) = at.events(e.NotificationResumed)
    assert resumed.event_time == held.due_at
    assert (resumed.disposition, resumed.preferences_revision) == ("suppressed", 2)


def test_longer_quiet_hours_hold_it_again() -> None:
    at = desk(quiet_scope="marketing")
    at.ask(send(priority="marketing"), NIGHT)
    at.ask(wants(quiet_scope="marketing", quiet_end=9 * 60))
    at.pass_to(T + 2 * DAY)
    first, second = at.events(e.NotificationResumed)
    assert (first.disposition, second.disposition) == ("held", "released")
    assert second.event_time == first.due_at


def test_a_schedule_is_kept_and_can_be_cancelled_until_it_is_due() -> None:
    at = desk()
    told = at.ask(send("n-1", send_at=T + HOUR))
    at.ask(send("n-2", send_at=T + HOUR))
    assert (told.disposition, told.due_at) == ("scheduled", T + HOUR)
    at.ask(e.CancelNotification("u", "n-1"), T + HOUR - 1)
    at.pass_to(T + HOUR)
    assert [r.notification_id for r in at.events(e.NotificationResumed)] == ["n-2"]
    assert at.refused(e.CancelNotification("u", "n-2")) == "not_pending"
    assert at.refused(e.CancelNotification("u", "n-1")) == "not_pending"
    assert not at.state.timers


def test_nobody_cancels_what_is_anothers() -> None:
    at = desk()
    at.ask(send(send_at=T + HOUR))
    assert at.refused(e.CancelNotification("v", "n-1")) == "not_pending"


def test_a_time_in_the_past_is_now() -> None:
    assert desk().ask(send(send_at=T - HOUR)).disposition == "released"


def test_a_key_is_used_once_for_longer_than_any_cache_lives() -> None:
    at = desk()
    at.ask(send("n-1", idempotency_key="k"))
    again = at.ask(send("n-2", idempotency_key="k"), T + KEY_MS - MINUTE)
    assert (again.notification_id, again.repeated_id) == ("n-1", "n-2")
    assert at.reply().status == 200
    assert at.refused(send("n-3", idempotency_key="k", params='{"a":1}')) == "key_reused"
    assert sent(at.ask(send("n-4", user="u", idempotency_key="other")))
    assert not list(at.ask(send("n-5", user="v", idempotency_key="k")).deliveries)


def test_old_keys_are_forgotten_in_order_and_new_ones_kept() -> None:
    at = desk()
    for n in range(50):
        at.ask(send(f"n-{n}", idempotency_key=f"k-{n}"))
    for n in range(50, 80):
        at.ask(send(f"n-{n}", idempotency_key=f"k-{n}"), T + KEY_MS + 1)
    kept = {key for _, key in at.state["keys"]}
    assert kept == {f"k-{n}" for n in range(50, 80)}
    assert len(at.state["key_order"]) == 30
    assert not isinstance(at.ask(send("n-x", idempotency_key="k-3")), e.NotificationRepeated)


def test_an_invalid_device_is_never_used_again_and_the_oldest_make_room() -> None:
    at = desk()
    removed = at.ask(e.RemoveDevice("u", "tok-u", "invalid"))
    assert removed.known
    assert at.ask(send(channels=["push"])).disposition == "suppressed"
    assert not at.ask(e.RemoveDevice("u", "tok-u", "invalid")).known
    assert at.reply().status == 404
    for n in range(DEVICES_MAX + 3):
        at.ask(e.RegisterDevice("u", f"t-{n}", "web"))
    at.ask(e.RegisterDevice("u", "t-5", "web"))
    tokens = [address for _, address in sent(at.ask(send("n-2", channels=["push"])))]
    assert tokens == [f"t-{n}" for n in (3, 4, *range(6, DEVICES_MAX + 3), 5)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"timezone": "Mars/Base"}, "unknown_timezone"),
        ({"quiet_start": 1_440}, "bad_quiet_hours"),
        ({"quiet_end": -1}, "bad_quiet_hours"),
    ],
)
def test_preferences_that_cannot_be_are_refused(change: dict[str, object], code: str) -> None:
    assert desk().refused(wants(**change)) == code


def test_state_is_the_fold_of_the_events() -> None:
    at = desk(quiet_scope="marketing")
    at.ask(send("n-1", idempotency_key="k", send_at=T + HOUR))
    at.ask(send("n-2", priority="marketing"), NIGHT)
    at.ask(send("n-3", digest_key="d", digest_window_ms=HOUR))
    again = at.replayed()
    assert again.tables == at.state.tables
    assert again.timers == at.state.timers
