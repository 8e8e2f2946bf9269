"""Reactors on a real log: slow targets, kills, breakers, dead letters and their redrive."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.processes import until
from tests.runtime.reactor.asking import Asked
from tests.runtime.reactor.rig import Rig

pytestmark = pytest.mark.stack


@pytest.fixture
def rig(tmp_path):
    one = Rig(tmp_path)
    yield one
    one.close()


def test_a_target_that_hangs_does_not_delay_the_others(rig):
    rig.provider.hang("slow")
    good = [Asked(f"q{n}-{target}", f"good{target}") for n in range(10) for target in range(20)]
    slow = [Asked(f"slow{n}", "slow") for n in range(20)]
    rig.ask(*slow, *good)
    with rig.worker():
        until(lambda: len(rig.answers()) >= len(good), 60, "all good ones are answered")
        questions = {answer.question for answer in rig.answers()}
        assert questions == {row.question for row in good}
        assert rig.provider.targets["slow"] == 4  # per_target
        rig.provider.release("slow")
        until(lambda: len(rig.answers()) >= 220, 60, "the slow ones are answered too")
    assert max(rig.provider.began.values()) == 1


def test_kill_in_mid_flight_repeats_only_what_was_in_flight(rig):
    rig.provider.hang("slow")
    rows = [Asked(f"q{n}", "slow" if n % 20 == 0 else f"good{n % 7}") for n in range(200)]
    rig.ask(*rows)
    with rig.worker() as process:
        until(lambda: len(rig.answers()) >= 190, 60, "all but the slow ones are answered")
        until(
            lambda: sum(b - a for one in rig.commits().values() for a, b in one.done) >= 100,
            30,
            "what is done beyond the hanging calls is committed",
        )
        until(lambda: rig.provider.targets["slow"] == 4, 30, "4 calls hang")
        process.kill()
        process.wait()
    before = Counter(rig.provider.began)
    in_flight = before - rig.provider.ended
    assert sum(in_flight.values()) == 4
    rig.provider.release("slow")
    with rig.worker():
        until(lambda: len({one.question for one in rig.answers()}) == 200, 60, "all are answered")
    repeated = {task for task, calls in rig.provider.began.items() if calls > 1}
    assert len(rig.provider.began) == 200
    assert repeated <= set(in_flight)
