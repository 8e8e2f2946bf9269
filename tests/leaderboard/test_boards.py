"""The rules of the boards, one by one."""

from __future__ import annotations

import pytest

from streams.leaderboard import LATENESS_MS, POINTS_MAX
from tests.leaderboard.log import BOUND, DAY, HOUR, Event, T, back, ban, boards, run, score

ALL = ("b", "SUM", "all", 0)


def board(*events: Event, key=ALL, cuts: tuple[int, ...] = ()):
    return boards([run(*events, cuts=cuts)]).get(key, [])


OPERATORS = {
    "SUM": [("p", 10, T + 3), ("q", 10, T + 5)],
    "BEST": [("p", 7, T + 1), ("q", 7, T + 5), ("r", 1, T)],
    "LAST": [("q", 7, T + 5), ("p", 2, T + 3)],
}


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("cuts", [(), (1, 1, 1, 1, 1, 1, 1)], ids=["one batch", "row by row"])
def test_a_board_folds_by_its_operator(operator: str, cuts: tuple[int, ...]) -> None:
    scores = {"SUM": [1, 7, 2, 3], "BEST": [1, 7, 2, 7], "LAST": [1, 7, 2, 9]}[operator]
    at = {"SUM": [0, 1, 2, 3], "BEST": [0, 1, 2, 3], "LAST": [0, 1, 3, 2]}[operator]
    log = [
        score(f"p{n}", p if operator != "SUM" else [1, 4, 2, 3][n], at[n], operator=operator)
        for n, p in enumerate(scores)
    ]
    log.append(score("q", {"SUM": 10}.get(operator, 7), 5, "q", operator=operator))
    if operator == "BEST":
        log.append(score("r", 1, 0, "r", operator=operator))
    assert board(*log, key=("b", operator, "all", 0), cuts=cuts) == OPERATORS[operator]


def test_of_equal_scores_the_earlier_is_first_whatever_came_first() -> None:
    assert board(score("1", 5, 9, "late"), score("2", 5, 3, "early")) == [
        ("early", 5, T + 3),
        ("late", 5, T + 9),
    ]


def test_one_name_with_two_operators_is_two_boards() -> None:
    harness = run(score("1", 5), score("2", 4, operator="BEST"))
    assert {key[1] for key in boards([harness])} == {"SUM", "BEST"}


def test_a_score_counts_for_all_time_its_day_and_its_week() -> None:
    found = boards([run(score("1", 1, -1), score("2", 2, 0), score("3", 4, 7 * DAY - 1))])
    points = {key[2:]: places[0][1] for key, places in found.items()}
    assert points == {
        ("all", 0): 7,
        ("day", T - DAY): 1,
        ("day", T): 2,
        ("day", T + 6 * DAY): 4,
        ("week", T - 7 * DAY): 1,
        ("week", T): 6,
    }


def test_a_late_score_lands_in_its_own_day() -> None:
    log = (score("1", 1, 3 * DAY), score("late", 5, DAY - 1))
    assert board(*log, key=("b", "SUM", "day", T), cuts=(1,)) == [("p", 5, T + DAY - 1)]
    assert board(*log, key=("b", "SUM", "day", T + 3 * DAY)) == [("p", 1, T + 3 * DAY)]


def test_a_score_beyond_the_allowed_lateness_goes_to_the_late_output() -> None:
    harness = run(
        score("now", 1, LATENESS_MS + BOUND),
        score("too late", 5, 0),
        score("just", 7, 1),
    )
    assert harness.counts == {"applied": 2, "late": 1}
    assert harness.late == [(1, "headrace.leaderboard.ScoreSubmitted")]
    assert boards([harness])[ALL] == [("p", 8, T + LATENESS_MS + BOUND)]


def test_a_repeat_is_ignored() -> None:
    harness = run(score("1", 5), score("1", 5), score("2", 1), score("1", 5), cuts=[1, 1, 1])
    assert harness.counts == {"applied": 2, "duplicate": 2}
    assert boards([harness])[ALL] == [("p", 6, T)]


@pytest.mark.parametrize(
    "change", [{"points": 6}, {"board": "c"}, {"operator": "BEST"}, {"player": "q"}, {"at": 1}]
)
@pytest.mark.parametrize("cuts", [(), (1, 1, 1)], ids=["one batch", "row by row"])
def test_the_same_id_with_other_content_is_quarantined(change, cuts) -> None:
    other = score(**{"name": "1", "points": 5, **change})
    harness = run(score("1", 5), other, other, score("1", 5), cuts=cuts)
    assert harness.counts == {"applied": 1, "quarantined": 1, "duplicate": 2}
    assert harness.dead == {1: "field score_id: used before, with other content"}
    assert boards([harness])[ALL] == [("p", 5, T)]


@pytest.mark.parametrize("points", [POINTS_MAX + 1, -POINTS_MAX - 1, 2**63 - 1, -(2**63)])
def test_too_many_points_are_quarantined(points: int) -> None:
    harness = run(score("1", points), score("2", POINTS_MAX), score("3", -POINTS_MAX, 1))
    assert harness.counts == {"quarantined": 1, "applied": 2}
    assert harness.dead == {0: f"field points: beyond ±{POINTS_MAX}"}
    assert boards([harness])[ALL] == [("p", 0, T + 1)]


@pytest.mark.parametrize("cuts", [(), (1,) * 9, (2, 3)], ids=str)
def test_a_ban_closes_the_gap_until_the_player_is_reinstated(cuts: tuple[int, ...]) -> None:
    log = [
        score("1", 9, 0, "cheat"),
        score("2", 5, 1, "p"),
        score("3", 9, 2, "cheat", operator="BEST"),
        ban("cheat", at=3),
        score("4", 9, 4, "cheat"),
    ]
    harness = run(*log, cuts=cuts)
    assert harness.counts == {"applied": 4, "filtered": 1}
    assert {place[0] for places in boards([harness]).values() for place in places} == {"p"}
    harness.send(back("cheat", at=5), score("5", 2, 6, "cheat"))
    harness.run(cuts)
    assert boards([harness])[ALL] == [("p", 5, T + 1), ("cheat", 2, T + 6)]
    assert ("b", "BEST", "all", 0) not in boards([harness])


@pytest.mark.parametrize("cuts", [(), (1,) * 6], ids=str)
def test_a_repeated_ban_does_not_ban_again(cuts: tuple[int, ...]) -> None:
    """At-least-once delivery repeats a ban after the reinstatement it was followed by."""
    log = (score("1"), ban(), back(at=1), score("2", 5, 2), ban(), score("3", 1, 3))
    harness = run(*log, cuts=cuts)
    assert harness.counts == {"applied": 5, "duplicate": 1}
    assert boards([harness])[ALL] == [("p", 6, T + 3)]


@pytest.mark.parametrize("cuts", [(), (1,) * 6], ids=str)
def test_banned_again_under_another_id(cuts: tuple[int, ...]) -> None:
    log = (ban(), back(at=1), score("1", 5, 2), ban(name="again", at=3), score("2", 5, 4))
    harness = run(*log, cuts=cuts)
    assert harness.counts == {"applied": 4, "filtered": 1}
    assert boards([harness]) == {}


def test_a_ban_outlives_a_restart_however_old_it_is() -> None:
    harness = run(ban(), *(score(str(n), 1, n * DAY, "q") for n in range(20)), cuts=[1] * 20)
    assert harness.memory.position.low_offset > 0
    harness.crash()
    harness.send(score("p", 1, 20 * DAY), ban(at=20 * DAY))
    harness.run()
    assert harness.counts == {"applied": 21, "filtered": 1, "duplicate": 1}


@pytest.mark.parametrize("event", [score("1"), ban(), back()], ids=["score", "ban", "back"])
def test_a_batch_of_one_record_type_only(event: Event) -> None:
    assert run(event, event).counts == {"applied": 1, "duplicate": 1}


def test_a_batch_of_which_nothing_is_left() -> None:
    harness = run()
    harness.send(score("ahead", at=60_001), append_ms=T)
    harness.run()
    assert harness.counts == {"quarantined": 1}
    assert boards([harness]) == {}


def test_days_and_weeks_expire_after_the_retention_and_all_time_never() -> None:
    harness = run(score("1", 1), score("2", 1, 399 * DAY), cuts=[1])
    assert min(key[3] for key in boards([harness]) if key[2] == "day") == T
    harness.send(score("3", 1, 410 * DAY + HOUR))
    harness.run()
    assert {key[3] for key in boards([harness]) if key[2] == "day"} == {
        T + 399 * DAY,
        T + 410 * DAY,
    }
    assert boards([harness])[ALL][0][1] == 3
