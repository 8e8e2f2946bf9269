"""Random writers against a naive model: whatever they do, the store ends as the clean fold.

Writers are live ones, zombies with an old position, writes that are sent late, twice or after the
store was turned back, provisional flushes, and (for ClickHouse) writers that looked at the
position, slept, and go on, or that die between rows and position (for S3 as well); (for Cassandra)
writers that die or sleep between fence and rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from sinks.drivers.s3.bucket import Bucket
from sinks.drivers.s3.manifest import Manifest
from sinks.drivers.s3.versions import Stored, Versions
from streams.runtime.sink import FenceRefused, Sink, SinkRejected, SinkUnavailable, Write
from tests.drivers.model import TOPIC, stored
from tests.drivers.rigs import RIGS, MemoryRig, Rig, S3Rig
from tests.drivers.writer import Click, Writer, clean

clicks = st.lists(
    st.builds(
        Click,
        st.tuples(st.integers(0, 1), st.sampled_from("ab")),
        st.integers(0, 3).map(lambda n: n == 0),
    ),
    min_size=1,
    max_size=6,
)
rows = st.integers(1, 5)
who = st.integers(0, 2)


@dataclass(frozen=True)
class Breaking(Versions):
    """The versions of a writer that dies before it moves the position, or hears nothing of it."""

    dies: bool

    def swap(self, version: int, at: tuple[str, int], new: Manifest, old: Stored) -> Stored:
        if not self.dies:
            super().swap(version, at, new, old)
        raise SinkUnavailable("injected")


class Writers(RuleBasedStateMachine):
    """Three writers of one partition over one log."""

    store: str

    @initialize()
    def opens(self) -> None:
        self.rig: Rig = RIGS[self.store](rankings=False)
        self.log: list[Click] = []
        self.held: list[Write] = []
        self.older: Any = None
        self.looks: list[Any] = []
        self.asleep: list[tuple[Any, Any]] = []
        self.rig.sink().prepare(1)
        self.writers = [Writer(self.rig.sink(), self.log) for _ in range(3)]

    @rule(more=clicks)
    def events_arrive(self, more: list[Click]) -> None:
        self.log.extend(more)

    @rule(i=who, n=rows)
    def writes(self, i: int, n: int) -> None:
        """What this writer believes may be long past: then it is the zombie."""
        self.writers[i].send(self.writers[i].prepared(n))

    @rule(i=who)
    def loads(self, i: int) -> None:
        self.writers[i].load()

    @rule(i=who)
    def flushes(self, i: int) -> None:
        """An empty span with rows: what is there, once more."""
        writer = self.writers[i]
        if writer.position is not None:
            again = Write("ads.clicks.v1", 0, writer.position, writer.position,
                          writer.prepared(0).changes)  # fmt: skip
            writer.send(again)

    @rule(i=who, n=rows)
    def holds_a_write_back(self, i: int, n: int) -> None:
        """It is in flight; its writer goes on as if it had arrived."""
        writer = self.writers[i]
        self.held.append(writer.prepared(n))
        writer.position = self.held[-1].position
        if self.store == "s3":
            self.looks.append(Versions(*self.s3()).look(1, TOPIC, 0))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), times=st.integers(1, 2))
    def a_held_write_arrives(self, data: st.DataObject, times: int) -> None:
        write = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        for _ in range(times):
            try:
                self.writers[0].sink.write(1, write)
            except FenceRefused:
                continue

    @precondition(lambda self: self.older is None)
    @rule()
    def is_backed_up(self) -> None:
        self.older = self.rig.snapshot()

    @precondition(lambda self: self.older is not None)
    @rule()
    def is_turned_back(self) -> None:
        self.rig.restore(self.older)
        self.older = None
        self.asleep.clear()  # our copy has no tombstones, which a backup has

    @precondition(lambda self: isinstance(self.rig, MemoryRig))
    @rule(i=who, n=rows, lost=st.booleans(), after=st.integers(0, 3))
    def the_line_breaks(self, i: int, n: int, lost: bool, after: int) -> None:
        assert isinstance(self.rig, MemoryRig)
        if lost:
            self.rig.store.lose_replies(1)
        else:
            self.rig.store.fail_after(after)
        writer = self.writers[i]
        try:
            writer.send(writer.prepared(n))
        except SinkUnavailable:
            writer.load()
        self.rig.store.heal()

    @precondition(lambda self: self.store == "clickhouse" and self.held)
    @rule(data=st.data(), dies=st.booleans())
    def a_writer_that_looked_long_ago_goes_on(self, data: st.DataObject, dies: bool) -> None:
        write = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        sink: Any = self.rig.sink()
        looks = [write.expected] if dies else [write.expected, write.position]
        sink._stored = lambda *_: looks.pop(0)
        if dies:
            sink._move = lambda *_: sink._command("SELECT throwIf(1)")
        try:
            sink.write(1, write)
        except SinkRejected:
            assert dies

    def s3(self) -> tuple[Bucket, str]:
        assert isinstance(self.rig, S3Rig)
        return self.rig.bucket, self.rig.model.name

    @precondition(lambda self: self.store == "s3" and self.held)
    @rule(data=st.data(), fault=st.sampled_from(["", "dies", "no reply"]))
    def a_writer_that_saw_an_older_manifest_goes_on(self, data: st.DataObject, fault: str) -> None:
        write = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        sink: Any = self.rig.sink()
        if look := data.draw(st.sampled_from([None, *self.looks])):
            sink._known[1, TOPIC, 0] = look
        if fault:
            sink._versions = Breaking(*self.s3(), dies=fault == "dies")
        try:
            sink.write(1, write)
        except FenceRefused:
            return
        except SinkUnavailable:
            assert fault

    @precondition(lambda self: self.store == "cassandra")
    @rule(i=who, n=rows)
    def a_writer_dies_behind_the_fence(self, i: int, n: int) -> None:
        """Its rows are in the journal only; it may wake up with them in hand."""
        writer, sink = self.writers[i], self.rig.sink()

        def dies(*rows_in_hand: Any) -> None:
            self.asleep.append((sink, rows_in_hand))
            raise SinkUnavailable("dead")

        finish, sink._finish = sink._finish, dies  # type: ignore[attr-defined]
        try:
            sink.write(1, writer.prepared(n))
        except (FenceRefused, SinkUnavailable):
            writer.load()
        sink._finish = finish  # type: ignore[attr-defined]

    @precondition(lambda self: self.asleep)
    @rule(data=st.data())
    def it_wakes_up(self, data: st.DataObject) -> None:
        sink, rows_in_hand = data.draw(st.sampled_from(self.asleep))
        sink._finish(*rows_in_hand)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        try:
            last = Writer(self.rig.sink(), self.log)
            last.drain(rows=4)
            sink: Sink = last.sink
            assert stored(sink) == clean(self.log)
            assert [row[0] for row in sorted(stored(sink, "events"))] == list(range(len(self.log)))
        finally:
            self.rig.close()


def _case(store: str, examples: int) -> Any:
    machine = type(f"{store.title()}Writers", (Writers,), {"store": store})
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples,
        stateful_step_count=15,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return case


TestMemory = _case("memory", 60)
TestRedis = pytest.mark.stack(_case("redis", 40))
TestRedisCluster = pytest.mark.stack(_case("redis-cluster", 10))
TestCassandra = pytest.mark.stack(_case("cassandra", 8))
TestClickHouse = pytest.mark.stack(_case("clickhouse", 8))
TestS3 = pytest.mark.stack(_case("s3", 8))
