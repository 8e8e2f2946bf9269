"""Deciders on real Kafka: killed, paused, restarted; every command is decided once."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from streams.runtime import kafka
from streams.runtime.supervisor import EXIT_DECISION, LAST_STATUS
from tests.runtime.decider.bank import Deposit, Misbehave
from tests.runtime.decider.rig import Rig, Worker

pytestmark = pytest.mark.stack


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    try:
        yield made
    finally:
        made.close()


def deposits(count: int, account: str = "a") -> list[Deposit]:
    return [Deposit(account, 1) for _ in range(count)]


def balance(rig: Rig, account: str = "a") -> int:
    return rig.folded().folded.state["accounts"][account].balance  # type: ignore[no-any-return]


def sources(rig: Rig) -> int:
    """The offset of the last command that the event log answers."""
    return rig.folded().folded.filter.source_offset


def test_commands_are_answered_and_told_again(rig: Rig) -> None:
    rig.start().await_ready()
    asked = rig.send([Deposit("a", 1), Deposit("a", 2), Deposit("b", -1)], keys=["k1", "k2", "k3"])
    answers = rig.await_answers(asked)
    assert [one.status for one in answers] == [201, 201, 422]
    assert rig.noted(asked[0]) == answers[0]
    [again] = rig.await_answers(rig.send([Deposit("a", 1)], keys=["k1"]))
    assert (again.replay, again.body) == (True, answers[0].body)
    assert balance(rig) == 3


def test_a_killed_owner_is_followed_by_another(rig: Rig) -> None:
    first = rig.start(slot=0)
    first.await_ready()
    second = rig.start("--standby", slot=1)
    second.await_ready()
    asked = rig.send(deposits(500))
    rig.await_answers(asked[:1])
    first.kill()  # in the midst of them
    asked += rig.send(deposits(500))
    answers = rig.await_answers(asked)
    assert {one.status for one in answers} == {201}
    assert balance(rig) == 1_000
    assert sources(rig) == 999


def test_a_paused_owner_wakes_up_to_find_it_is_none(rig: Rig) -> None:
    first = rig.start(slot=0)
    first.await_ready()
    rig.await_answers(rig.send(deposits(10)))
    second = rig.start(slot=1)
    second.await_ready()
    rig.await_answers(rig.send(deposits(10)))  # the second may have taken the partition over
    owner = holder(first, second)
    asked = rig.send(deposits(300))
    owner.signal(signal.SIGSTOP)
    asked += rig.send(deposits(300))
    rig.await_answers(asked[-1:])
    owner.signal(signal.SIGCONT)  # what it had in flight and in its queues comes out now
    asked += rig.send(deposits(100))
    answers = rig.await_answers(asked)
    assert {one.status for one in answers} == {201}
    assert len(rig.writers()) >= 2
    assert balance(rig) == 720
    assert sources(rig) == 719


def test_a_restart_goes_on_from_a_snapshot(rig: Rig) -> None:
    first = rig.start("--snapshot-events", "200")
    first.await_ready()
    for _ in range(3):
        rig.await_answers(rig.send(deposits(150)))
    await_snapshots(rig, 1)
    first.kill()
    rig.send(deposits(50))
    second = rig.start("--snapshot-events", "200", slot=1)
    second.await_ready()
    rig.await_answers(rig.send([Deposit("a", 1)]))
    assert "snapshot" in second.log.read_text()
    assert balance(rig) == 501


def holder(*workers: Worker) -> Worker:
    """The worker that holds the only partition."""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        for one in workers:
            if one.metric("headrace_assigned_partitions") and one.metric("headrace_claims_total"):
                return one
        time.sleep(0.2)
    raise TimeoutError([one.text for one in workers])


def await_snapshots(rig: Rig, count: int) -> None:
    until_s = time.monotonic() + 30
    folder = rig.folder / "snapshots"
    while len([one for one in folder.rglob("*") if one.is_file()]) < count:
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_commands_that_are_gone_stop_the_worker(rig: Rig) -> None:
    worker = rig.start()
    worker.await_ready()
    rig.await_answers(rig.send(deposits(5)))
    worker.kill()
    rig.send(deposits(5))
    admin = kafka.admin(rig.settings.kafka)
    gone = TopicPartition(rig.decider.commands.name, 0, 7)
    for future in admin.delete_records([gone]).values():
        future.result(10)
    late = rig.start(slot=1)
    assert late.process.wait(150) == EXIT_DECISION, late.text
    assert "commands were deleted undecided" in late.text


def test_a_command_that_kills_twice_is_recorded_as_failed(rig: Rig) -> None:
    rig.start().await_ready()
    asked = rig.send([Deposit("a", 1), Misbehave("a", "exit"), Deposit("a", 2)])
    assert rig.workers[-1].process.wait(150) == 3
    for _ in range(4):
        worker = rig.start(env={LAST_STATUS: "3"})
        if rig.answered(asked, worker):
            break
        assert worker.process.wait() == 3, worker.text
    answers = rig.await_answers(asked)
    assert [one.status for one in answers] == [201, 500, 201]
    assert balance(rig) == 3
