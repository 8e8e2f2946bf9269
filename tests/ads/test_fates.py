"""Every fate an event can have, and that each event has exactly one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams.ads import CLICKS_MAX, COST_MAX_MICROS
from tests.ads.log import (
    BOUND,
    CLOSED,
    FIREFOX,
    GOOGLEBOT,
    HISTORY,
    MINUTE,
    WINDOWS,
    Event,
    T,
    click,
    run,
    shown,
    totals,
)


def fates(*events: Event, cuts: tuple[int, ...] = ()) -> list[str]:
    """The fate of each event; both projections must agree on how many have which."""
    history = run(HISTORY, *events, cuts=cuts)
    assert history.counts == run(WINDOWS, *events, cuts=cuts).counts
    rows = history.rows("events")
    assert rows["offset"].to_list() == list(range(len(events)))
    found = rows["fate"].to_list()
    assert history.counts == {fate: found.count(fate) for fate in set(found)}
    return found


def ids(*events: Event) -> list[str]:
    return run(HISTORY, *events).rows("events")["event_id"].to_list()


def test_an_event_counts_in_the_minute_and_hour_it_happened() -> None:
    harness = run(WINDOWS, shown(at=1), click(at=MINUTE - 1), click("k2", at=MINUTE))
    assert totals([harness], "minutes", "campaign_id", "ad_id", "hour_ms", "minute_ms") == {
        ("c", "a", T, T): (1, 1, 5),
        ("c", "a", T, T + MINUTE): (0, 1, 5),
    }
    assert totals([harness], "hours", "campaign_id", "hour_ms") == {("c", T): (1, 2, 10)}


def test_a_repeat_is_a_duplicate() -> None:
    assert fates(click(), click(), shown(), click(), shown()) == [
        "applied", "duplicate", "applied", "duplicate", "duplicate",
    ]  # fmt: skip


def test_a_click_and_an_impression_may_have_the_same_id() -> None:
    assert fates(click("same"), shown("same")) == ["applied", "applied"]
    assert ids(click("same"), shown("same")) == ["same", "same"]


@pytest.mark.parametrize(
    "change",
    [
        {"ad_id": "b"},
        {"campaign_id": "d"},
        {"country": "NL"},
        {"cost_micros": 6},
        {"user_agent": FIREFOX},
        {"impression_id": "i"},
        {"event_time": T + 1},
    ],
    ids=str,
)
def test_the_same_id_with_other_content_is_kept_under_a_new_id(change: dict[str, object]) -> None:
    other = replace(click(), **change)
    log = (click(), other, other, click())
    assert fates(*log) == ["applied", "applied", "duplicate", "duplicate"]
    assert ids(*log) == ["k", "k~1", "k", "k"]


def test_a_late_event_within_the_allowed_lateness_amends_its_minute() -> None:
    harness = run(WINDOWS, click(), click("now", at=CLOSED - 1), cuts=[1, 1])
    harness.send(click("late", at=MINUTE - 1))
    harness.run()
    assert totals([harness], "minutes", "minute_ms")[T,] == (0, 2, 10)
    assert harness.late == []


def test_a_later_one_goes_to_the_late_output() -> None:
    log = (click(), click("now", at=CLOSED), click("late", at=MINUTE - 1), click("in", at=MINUTE))
    assert fates(*log) == ["applied", "applied", "late", "applied"]
    harness = run(WINDOWS, *log)
    assert harness.late == [(2, "ads.events")]
    assert totals([harness], "minutes", "minute_ms")[T,] == (0, 1, 5)


def test_an_event_is_judged_by_the_watermark_before_it() -> None:
    """The row that closes a minute is not late itself, and rows of its batch before it are not."""
    first = click("first", at=CLOSED + MINUTE)
    assert fates(click(), first, shown(at=BOUND)) == ["applied", "applied", "late"]


@pytest.mark.parametrize(
    ("agent", "bot"),
    [
        (GOOGLEBOT, True),
        ("bot", True),
        ("AhrefsBot/7.0", True),
        ("curl/8.5.0", True),
        ("Baiduspider+", True),
        ("HeadlessChrome/126", True),
        (FIREFOX, False),
        ("Mozilla/5.0 (Linux; Android 14; CUBOT X70) Chrome/126", False),
        ("Bottle/1.0", False),
        ("", False),
        (None, False),
    ],
)
def test_a_bot_is_filtered(agent: str | None, bot: bool) -> None:
    assert fates(click(user_agent=agent)) == ["filtered" if bot else "applied"]


def test_a_bot_is_not_late_nor_a_duplicate() -> None:
    bot = click(user_agent=GOOGLEBOT)
    assert fates(bot, bot, shown("now", at=CLOSED), bot) == [
        "filtered", "filtered", "applied", "filtered",
    ]  # fmt: skip


@pytest.mark.parametrize("cuts", [(), (1,) * 15, (4, 7), (10, 1), (9, 1, 1)])
def test_the_eleventh_click_of_a_user_on_an_ad_in_a_minute_is_filtered(
    cuts: tuple[int, ...],
) -> None:
    clicks = [click(f"k{n}", at=n) for n in range(CLICKS_MAX + 2)]
    assert fates(*clicks, cuts=cuts) == ["applied"] * CLICKS_MAX + ["filtered"] * 2


def test_each_user_ad_and_minute_has_a_limit_of_its_own() -> None:
    clicks = [click(f"k{n}", at=n) for n in range(CLICKS_MAX)]
    more = [click("u", user_id="v"), click("a", ad_id="b"), click("m", at=MINUTE), shown()]
    assert fates(*clicks, *more, click("over")) == ["applied"] * (CLICKS_MAX + 4) + ["filtered"]


def test_repeats_and_bots_do_not_use_up_the_limit() -> None:
    wasted = [click()] * 12 + [click(f"b{n}", user_agent=GOOGLEBOT) for n in range(12)]
    clicks = [click(f"k{n}", at=n) for n in range(CLICKS_MAX)]
    found = fates(*wasted, *clicks)
    assert found.count("applied") == CLICKS_MAX
    assert found[-1] == "filtered"


def test_a_repeat_of_a_filtered_click_is_a_duplicate() -> None:
    clicks = [click(f"k{n}", at=n) for n in range(CLICKS_MAX + 1)]
    assert fates(*clicks, clicks[-1])[-2:] == ["filtered", "duplicate"]


@pytest.mark.parametrize("cost", [-1, COST_MAX_MICROS + 1, 2**63 - 1, -(2**63)])
def test_a_cost_that_no_click_has_is_quarantined(cost: int) -> None:
    log = (click("odd", cost_micros=cost), click("most", cost_micros=COST_MAX_MICROS), click())
    assert fates(*log) == ["quarantined", "applied", "applied"]
    for projection in (WINDOWS, HISTORY):
        assert run(projection, *log).dead == {0: f"field cost_micros: not in 0..{10**12}"}
    minutes = totals([run(WINDOWS, *log)], "minutes", "minute_ms")
    assert minutes == {(T,): (0, 2, COST_MAX_MICROS + 5)}


def test_an_event_ahead_of_the_log_never_reaches_the_fold() -> None:
    harness = run(WINDOWS)
    harness.send(click("ahead", at=60_001), append_ms=T)
    harness.send(click("just", at=60_000), append_ms=T)
    harness.run(cuts=[1, 1])
    assert harness.counts == {"quarantined": 1, "applied": 1}


def test_nothing_is_stored_of_an_empty_log() -> None:
    harness = run(WINDOWS)
    harness.send(click(), append_ms=T - 60_001)
    harness.run()
    position = harness.memory.position
    assert (position.next_offset, position.watermark_ms) == (1, -(2**62))
    assert harness.rows("minutes").is_empty()
    assert harness.rows("hours").is_empty()


@pytest.mark.parametrize("only", [click, shown])
def test_a_batch_of_one_record_type_only(only) -> None:
    assert fates(only("1"), only("2"), only("1")) == ["applied", "applied", "duplicate"]


def test_minutes_expire_after_the_retention_and_not_before() -> None:
    day = 24 * 3_600_000
    harness = run(WINDOWS, click(), click("soon", at=399 * day), cuts=[1])
    assert harness.rows("minutes")["minute_ms"].min() == T
    harness.send(click("then", at=401 * day))
    harness.run()
    assert harness.rows("minutes")["minute_ms"].min() == T + 399 * day
    assert harness.rows("hours")["hour_ms"].min() == T + 399 * day
