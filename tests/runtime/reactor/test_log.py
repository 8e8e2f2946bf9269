"""Reactors on a real log: slow targets, kills, breakers, dead letters and their redrive."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest

from infra.dlq.letters import Letter
from infra.dlq.redrive import Fate, Redrive, Wish
from infra.lag.measure import committed
from streams.runtime import kafka
from streams.runtime.decider.wire import IDEMPOTENCY_KEY
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


def test_the_breaker_opens_probes_and_closes_and_nobody_loses_a_try(rig):
    rig.provider.status["down"] = 503
    rig.ask(*(Asked(f"q{n}", "down", provider="psp") for n in range(30)))
    with rig.worker():
        until(lambda: rig.metric("reactor_breakers_open") == 1, 30, "the breaker opens")
        until(lambda: rig.metric("deferred_total breaker") >= 30, 30, "tasks are held back")
        calls = sum(rig.provider.began.values())
        assert calls < 30  # in flight when it opened, and probes
        until(lambda: sum(rig.provider.began.values()) > calls, 30, "a probe")
        rig.provider.status["down"] = 200
        until(lambda: len(rig.answers()) == 30, 60, "all are answered")
        assert rig.metric("reactor_breakers_open") == 0
    assert {answer.result for answer in rig.answers()} == {"ok"}
    assert rig.records(rig.asked.dead_letters) == []


def test_after_the_last_try_a_dead_letter_and_a_redrive_that_only_the_reactor_sees(rig):
    rig.provider.status |= {"bad": 500, "gone": 410}
    rows = [Asked("bad1", "bad"), Asked("gone1", "gone"), Asked("good1", "good")]
    rig.ask(*rows, Asked("none", "nobody"))
    with rig.worker():
        until(lambda: len(rig.answers()) == 3, 60, "all three are over")
        found = {answer.question: answer for answer in rig.answers()}
        assert found["good1"].result == "ok"
        assert found["gone1"].result == "gave up: gone"
        assert found["gone1"].attempt == 1
        assert found["bad1"].result == "gave up: status 500 (try 3 of 3)"
        assert found["bad1"].attempt == 3
        letters = until(lambda: _letters(rig, 2), 30, "two dead letters")
        assert {letter.agent for letter in letters} == {rig.name}
        assert {str(letter.source.topic) for letter in letters} == {rig.asked.name}

        seen = {place.topic for place in committed(rig.settings.kafka, [rig.name])}
        assert {rig.asked.name, f"{rig.name}.retry.300ms", f"{rig.name}.retry.1s"} <= seen

        rig.provider.status = {}
        ends = len(rig.records(rig.asked.name))
        fates = Redrive(rig.settings.kafka, Wish(rig.asked)).run()
        assert fates == {Fate.SENT: 2}
        until(lambda: len(rig.answers()) == 5, 60, "both are answered")
        assert len(rig.records(rig.asked.name)) == ends
        again = [answer for answer in rig.answers() if answer.result == "ok"]
        assert Counter(answer.question for answer in again) == {"good1": 1, "bad1": 1, "gone1": 1}
        assert {one.task for one in again if one.question == "bad1"} == {found["bad1"].task}


def test_a_task_that_fails_again_after_a_redrive_can_be_redriven_again(rig):
    rig.provider.status["gone"] = 410
    rig.ask(Asked("gone1", "gone"))
    with rig.worker():
        for times in (1, 2):
            letters = until(lambda n=times: _letters(rig, n), 60, "a dead letter")
            assert letters[-1].redrives == times - 1
            assert Redrive(rig.settings.kafka, Wish(rig.asked)).run() == {Fate.SENT: 1}
        until(lambda: _letters(rig, 3), 60, "the third")
    keys = [dict(message.headers())[IDEMPOTENCY_KEY] for message in rig.records(rig.answered.name)]
    assert len(set(keys)) == 3


def test_unreadable_records_are_set_aside_and_the_others_go_on(rig):
    producer = kafka.producer(rig.settings.kafka)
    for value in (b"", b"\x00\x00\x00\x00\x00broken", None):
        producer.produce(rig.asked.name, key=b"k", value=value)
    assert producer.flush(30) == 0
    rig.ask(Asked("good", "good"))
    with rig.worker():
        until(lambda: len(rig.answers()) == 1, 60, "the good one is answered")
        letters = until(lambda: _letters(rig, 2), 30, "two dead letters")
    assert {letter.reason.split(":")[0] for letter in letters} == {"DecodeError"}
    assert {letter.value for letter in letters} == {b"", b"\x00\x00\x00\x00\x00broken"}


def test_a_graceful_stop_waits_for_calls_and_commits_them(rig):
    rig.provider.hang("slow")
    rig.ask(*(Asked(f"q{n}", "slow" if n < 3 else f"t{n % 5}") for n in range(50)))
    with rig.worker() as process:
        until(lambda: rig.provider.targets["slow"] == 3, 30, "three calls hang")
        until(lambda: len(rig.answers()) == 47, 30, "the others are answered")
        process.terminate()
        until(lambda: not _listening(rig), 30, "the worker is about to end")
        rig.provider.release("slow")
        assert process.wait(40) == 0, rig.log.read_text()[-3_000:]
    assert Counter(answer.attempt for answer in rig.answers()) == {1: 50}
    assert sum(one.offset for one in rig.commits().values()) == 50
    assert max(rig.provider.began.values()) == 1


def _listening(rig):
    try:
        httpx.get(rig.metrics_url)
    except httpx.TransportError:
        return False
    return True


def _letters(rig, count):
    records = rig.records(rig.asked.dead_letters)
    records.sort(key=lambda message: message.timestamp()[1])
    return [Letter.of(message) for message in records] if len(records) >= count else []


def test_a_second_worker_takes_over_partitions_without_a_loss(rig):
    rig.ask(*(Asked(f"q{n}", f"t{n % 9}") for n in range(150)))
    with rig.worker():
        until(rig.answers, 30, "the first works")
        with rig.worker() as second:
            rig.ask(*(Asked(f"r{n}", f"t{n % 9}") for n in range(150)))
            until(lambda: len({one.question for one in rig.answers()}) == 300, 60, "all")
            # Its share of every topic: one partition of two.
            assert rig.metric("headrace_assigned_partitions") == 3
            assert rig.metric(f'headrace_assigned_partitions "{rig.asked.name}"') == 1
            second.terminate()
            assert second.wait(40) == 0, rig.log.read_text()[-3_000:]
        rig.ask(*(Asked(f"s{n}", "t") for n in range(20)))
        until(lambda: len({one.question for one in rig.answers()}) == 320, 60, "the rest")
    assert max(rig.provider.began.values()) == 1
