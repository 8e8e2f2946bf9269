"""The stream against a recount in plain Python, to the unit."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.digest import digest
from streams.runtime.testing import assert_replay_deterministic
from tests.ads.log import (
    FIREFOX,
    GOOGLEBOT,
    HISTORY,
    HOUR,
    MINUTE,
    WINDOWS,
    Event,
    T,
    click,
    memory,
    recount,
    run,
    run_partitions,
    shown,
    totals,
)

ADS = [("spring", "a"), ("spring", "b"), ("autumn", "a")]


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Few ids and users, times over three hours, now and then a bot or a crazy cost."""
    campaign, ad = draw(st.sampled_from(ADS))
    shared = {
        "name": draw(st.sampled_from("123456")),
        "at": draw(st.integers(0, 9)) * 20 * MINUTE + draw(st.sampled_from([0, 1, MINUTE - 1])),
        "user_id": draw(st.sampled_from("uv")),
        "campaign_id": campaign,
        "ad_id": ad,
    }
    if draw(st.booleans()):
        return shown(**shared)
    agent = draw(st.sampled_from([None, None, FIREFOX, GOOGLEBOT]))
    return click(**shared, user_agent=agent, cost_micros=draw(st.sampled_from([0, 7, 7, -1])))


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log with repeats and bursts of clicks."""
    log = draw(st.lists(events(), max_size=30))
    for at in draw(st.lists(st.integers(0, 40), max_size=10)) if log else []:
        log.append(log[at % len(log)])
    if draw(st.booleans()):
        start = draw(st.integers(0, len(log)))
        log[start:start] = [click(f"burst{n}") for n in range(draw(st.integers(8, 14)))]
    return log


@settings(max_examples=60, deadline=None)
@given(logs(), st.lists(st.integers(1, 9), max_size=20))
def test_every_event_has_the_fate_of_the_recount(log: list[Event], cuts: list[int]) -> None:
    expected = recount(log)
    history = run(HISTORY, *log, cuts=cuts)
    assert history.rows("events")["fate"].to_list() == expected.fates
    windows = run(WINDOWS, *log, cuts=cuts)
    assert windows.counts == history.counts == expected.counts
    assert sum(windows.counts.values()) == len(log)
    assert totals([windows], "minutes", "campaign_id", "ad_id", "minute_ms") == expected.minutes


@settings(max_examples=15, deadline=None)
@given(logs(), st.integers(0, 2**16), st.sampled_from([WINDOWS, HISTORY]))
def test_crashes_and_cuts_change_nothing(log, seed, projection) -> None:
    assert_replay_deterministic(projection, log, seed, memory)


def test_the_disturbed_run_is_not_void() -> None:
    log = [click(f"k{n % 40}", at=n % 40 * MINUTE * 4) for n in range(80)]
    for projection in (WINDOWS, HISTORY):
        run_ = assert_replay_deterministic(projection, log, 3, memory)
        assert min(run_.batches, run_.crashes, run_.replayed) > 3


def busy_hour() -> list[Event]:
    """Half an hour of traffic of 500 users, of which one campaign has nearly all, in order."""
    chance = random.Random(7)
    log: list[Event] = []
    for n in range(4_000):
        campaign, ad = ADS[0] if chance.random() < 0.9 else chance.choice(ADS)
        shared = {
            "at": n * (HOUR // 2) // 4_000,
            "user_id": f"user-{chance.randrange(500)}",
            "campaign_id": campaign,
            "ad_id": ad,
        }
        log.append(shown(f"i{n}", **shared))
        if n % 3 == 0:
            agent = GOOGLEBOT if n % 15 == 0 else FIREFOX
            log.append(click(f"k{n}", **shared, user_agent=agent, cost_micros=len(campaign)))
    log += [click(f"h{n}", at=5_000 + n, user_id="hammer") for n in range(25)]
    return log


def test_a_fifth_repeated_and_all_shuffled_comes_to_the_same_unit() -> None:
    """Nothing is late (half an hour, one allowed), so the plain count of the honest log is right:
    distinct events, without bots, ten clicks of the hammering user.
    """
    honest = busy_hour()
    expected: dict[tuple[str, str], tuple[int, int, int]] = {}
    hammered = 0
    for event in honest:
        if getattr(event, "user_agent", None) == GOOGLEBOT:
            continue
        hammered += event.user_id == "hammer"
        if event.user_id == "hammer" and hammered > 10:
            continue
        shows, clicks, cost = expected.get((event.campaign_id, event.ad_id), (0, 0, 0))
        paid = getattr(event, "cost_micros", None)
        expected[event.campaign_id, event.ad_id] = (
            shows + (paid is None), clicks + (paid is not None), cost + (paid or 0),
        )  # fmt: skip

    chance = random.Random(11)
    log = honest + chance.choices(honest, k=len(honest) // 5)
    chance.shuffle(log)
    harnesses = run_partitions(WINDOWS, log)

    assert totals(harnesses, "minutes", "campaign_id", "ad_id") == expected
    by_campaign = totals(harnesses, "hours", "campaign_id")
    assert sum(clicks for _, clicks, _ in by_campaign.values()) == sum(
        clicks for _, clicks, _ in expected.values()
    )
    counts = [harness.counts for harness in harnesses]
    assert sum(sum(c.values()) for c in counts) == len(log)
    assert all(c.get("late", 0) == 0 for c in counts)
    spread = [
        h.rows("minutes").filter(campaign_id="spring")["impressions"].sum() for h in harnesses
    ]
    assert min(spread) > 0.1 * sum(spread), "the hot campaign is on all partitions"


def test_the_history_is_a_second_count_of_the_same_log() -> None:
    chance = random.Random(5)
    log = busy_hour()[:2_000]
    log += chance.choices(log, k=400)
    chance.shuffle(log)
    windows, history = run_partitions(WINDOWS, log), run_partitions(HISTORY, log)
    clicks = cost = shows = 0
    for harness in history:
        applied = harness.rows("events").filter(fate="applied")
        assert applied.select("kind", "event_id", "event_time").is_unique().all()
        shows += applied.filter(kind="impression").height
        clicks += applied.filter(kind="click").height
        cost += applied["cost_micros"].sum()
    assert [tuple(map(sum, zip(*totals(windows, "hours", "hour_ms").values(), strict=True)))] == [
        (shows, clicks, cost)
    ]


def test_a_rebuild_with_other_cuts_has_the_same_digest() -> None:
    chance = random.Random(3)
    log = [replace(event, user_id="u") for event in busy_hour()[:600]]
    for projection in (WINDOWS, HISTORY):
        live = run(projection, *log, cuts=[chance.randint(1, 90) for _ in range(20)])
        rebuilt = run(projection, *log)
        assert digest(live.sink, 1) == digest(rebuilt.sink, 1)
        assert all(table.rows for table in digest(live.sink, 1).values())


def test_a_restart_rebuilds_the_hours_that_are_open_after_their_minutes_are_not() -> None:
    """At 01:35 the minute 00:00 is closed and the hour is not: 00:40 still comes into it."""
    harness = run(WINDOWS, click("1"), click("2", HOUR + 35 * MINUTE), cuts=[1, 1])
    assert harness.memory.position.low_offset == 0
    harness.crash()
    harness.send(click("3", 40 * MINUTE))
    harness.run()
    assert totals([harness], "hours", "hour_ms")[T,] == (0, 2, 10)


def test_a_restart_remembers_who_reused_an_id_after_the_first_use_is_forgotten() -> None:
    reused = click("x", HOUR // 2)
    harness = run(HISTORY, click("x"), reused, click("now", HOUR + 15 * MINUTE), cuts=[1, 1, 1])
    harness.crash()
    harness.send(reused, click("x", HOUR // 2 + 10 * MINUTE))
    harness.run()
    assert harness.rows("events").select("event_id", "fate").rows() == [
        ("x", "applied"),
        ("x~1", "applied"),
        ("now", "applied"),
        ("x", "duplicate"),
        ("x~4", "applied"),
    ]


def test_a_restart_remembers_the_clicks_of_a_user() -> None:
    clicks = [click(f"k{n}", n) for n in range(12)]
    for cut in range(1, 12):
        harness = run(HISTORY, *clicks[:cut], cuts=[1] * cut)
        harness.crash()
        harness.send(*clicks[cut:], clicks[0])
        harness.run()
        assert harness.counts == {"applied": 10, "filtered": 2, "duplicate": 1}
