"""The boards against a sort of the scores, under any cut, crash and rebuild."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.digest import differences, digest, summary
from streams.runtime.testing import assert_replay_deterministic
from tests.leaderboard.log import (
    DAY,
    HOUR,
    PROJECTION,
    Event,
    T,
    back,
    ban,
    boards,
    memory,
    naive,
    ordered,
    run,
    run_partitions,
    score,
)

ALL = ("b", "SUM", "all", 0)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Few ids and players, times over three weeks, now and then a ban or a crazy score."""
    player = draw(st.sampled_from("pqr"))
    at = draw(st.integers(0, 21)) * DAY + draw(st.sampled_from([0, HOUR, DAY - 1]))
    if draw(st.integers(0, 5)) == 0:
        kind = draw(st.sampled_from([ban, back]))
        return kind(player, draw(st.sampled_from("12")), at)
    return score(
        draw(st.sampled_from("12345678")),
        draw(st.sampled_from([-3, 0, 1, 2, 2, 9, 10**13])),
        at,
        player,
        operator=draw(st.sampled_from(["SUM", "BEST", "LAST"])),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log with repeats."""
    log = draw(st.lists(events(), max_size=30))
    for at in draw(st.lists(st.integers(0, 40), max_size=10)) if log else []:
        log.append(log[at % len(log)])
    return log


@settings(max_examples=60, deadline=None)
@given(logs(), st.lists(st.integers(1, 9), max_size=20))
def test_the_boards_are_a_sort_of_the_scores(log: list[Event], cuts: list[int]) -> None:
    expected = naive(log)
    harness = run(*log, cuts=cuts)
    assert harness.counts == {f: expected.fates.count(f) for f in set(expected.fates)}
    assert sum(harness.counts.values()) == len(log)
    assert boards([harness]) == expected.boards()
    dead = [n for n, fate in enumerate(expected.fates) if fate == "quarantined"]
    assert sorted(harness.dead) == dead


@settings(max_examples=15, deadline=None)
@given(logs(), st.integers(0, 2**16))
def test_crashes_and_cuts_change_nothing(log: list[Event], seed: int) -> None:
    assert_replay_deterministic(PROJECTION, log, seed, memory)


def test_the_disturbed_run_is_not_void() -> None:
    log: list[Event] = [score(str(n % 40), 1, n % 40 * HOUR) for n in range(80)]
    log[30:30] = [ban(), ban(), back(at=1)]
    found = assert_replay_deterministic(PROJECTION, log, 3, memory)
    assert min(found.batches, found.crashes, found.replayed) > 3


PLAYERS = 1_000


def season(chance: random.Random) -> list[Event]:
    """Scores of 1,000 players, three each, with a fifth of them delivered twice."""
    log: list[Event] = [
        score(f"{player}-{n}", chance.randrange(50), chance.randrange(3 * DAY), f"p{player}")
        for player in range(PLAYERS)
        for n in range(3)
    ]
    log += chance.choices(log, k=len(log) // 5)
    chance.shuffle(log)
    return log


def test_one_percent_banned_ranks_are_a_sort_of_the_rest_also_after_a_rebuild() -> None:
    chance = random.Random(17)
    log = season(chance)
    cheats = [f"p{n}" for n in chance.sample(range(PLAYERS), PLAYERS // 100)]
    for cheat in cheats:
        log.insert(chance.randrange(len(log) // 2), ban(cheat, f"ban-{cheat}", DAY))
    sink = memory(PROJECTION.model)

    live = run_partitions(log, sink, cut=173)

    distinct = {event for event in log if getattr(event, "score_id", None)}
    rest: dict[str, tuple[int, int]] = {}
    for one in distinct:
        if one.player_id not in cheats:
            points, reached = rest.get(one.player_id, (0, 0))
            rest[one.player_id] = (points + one.points, max(reached, one.event_time))
    assert boards(live)[ALL] == ordered((player, *found) for player, found in rest.items())
    assert len(boards(live)[ALL]) == PLAYERS - len(cheats)
    filtered = sum(harness.counts.get("filtered", 0) for harness in live)
    assert filtered > 0, "some scores came while the ban lasted"

    sink.prepare(2)
    for harness in live:
        harness.version, _ = 2, harness.crash()
        harness.run()
    assert digest(sink, 2) == digest(sink, 1)
    assert summary(digest(sink, 1)) == summary(digest(sink, 2))
    assert differences(sink, 1, 2) == []


@pytest.mark.parametrize("seed", range(3))
def test_a_rebuild_with_other_cuts_has_the_same_digest(seed: int) -> None:
    chance = random.Random(seed)
    log = season(chance)[:400]
    for n in range(0, 400, 40):
        log.insert(n, chance.choice([ban, back])(f"p{chance.randrange(20)}", f"d{n}", DAY))
    live = run(*log, cuts=[chance.randint(1, 60) for _ in range(12)])
    assert digest(live.sink, 1) == digest(run(*log).sink, 1)


def test_a_restart_remembers_who_reused_an_id_after_the_first_use_is_forgotten() -> None:
    reused = score("x", 2, 3 * DAY)
    harness = run(score("x"), reused, score("now", 1, 8 * DAY), cuts=[1, 1, 1])
    harness.crash()
    harness.send(reused, score("x", 4, 4 * DAY))
    harness.run()
    assert harness.counts == {"applied": 2, "quarantined": 2, "duplicate": 1}
    assert boards([harness])[ALL] == [("p", 2, T + 8 * DAY)]


def test_a_restart_remembers_ids_for_as_long_as_repeats_may_come() -> None:
    harness = run(score("1"), score("now", 1, 6 * DAY), cuts=[1, 1])
    harness.crash()
    harness.send(score("1"), score("1", 2))
    harness.run()
    assert harness.counts == {"applied": 2, "duplicate": 1, "quarantined": 1}
