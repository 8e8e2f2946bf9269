"""The reader over a pretended consumer: what is due goes out, what is not holds up nobody else."""

from __future__ import annotations

import threading
from collections import deque

import pytest
from confluent_kafka import Message, TopicPartition

from streams.runtime.reactor.reader import HANDED_ROWS_MAX, HELD_ROWS_MAX, Reader
from streams.runtime.reactor.wire import Journey
from tests.runtime.lane.test_reader import until

SOURCE, RETRY = "s", "r.retry.5s"


class Consumer:
    """Gives the records put into `log`, unless their partition is paused."""

    def __init__(self):
        self.log: dict[tuple[str, int], deque[Message]] = {}
        self.paused: set[tuple[str, int]] = set()
        self.events = deque()
        self.commits = []
        self.committed_at = {}
        self.seeks = []
        self.callbacks = {}
        self.assigned = set()
        self.closed = threading.Event()

    def subscribe(self, topics, **callbacks):
        self.topics, self.callbacks = topics, callbacks

    def run(self, callback, *places):
        listed = [TopicPartition(*place) for place in places]
        self.events.append(lambda: self.callbacks[callback](self, listed))

    def poll(self, timeout):
        while self.events:
            self.events.popleft()()
        return next(iter(self.consume(1, timeout)), None)

    def consume(self, count, timeout):
        found = []
        for place in sorted(self.assigned - self.paused):
            queue = self.log.get(place, ())
            while queue and len(found) < count:
                found.append(queue.popleft())
        if not found:
            threading.Event().wait(min(timeout, 0.001))
        return found

    def committed(self, places):
        return [
            TopicPartition(p.topic, p.partition, *self.committed_at.get(p.topic, (-1001,)))
            for p in places
        ]

    def assign(self, places):
        self.assigned = {(p.topic, p.partition) for p in places}

    def unassign(self):
        self.assigned = set()

    def pause(self, places):
        self.paused |= {(p.topic, p.partition) for p in places}

    def resume(self, places):
        self.paused -= {(p.topic, p.partition) for p in places}

    def seek(self, place):
        self.seeks.append(place)

    def commit(self, *, offsets, asynchronous):
        self.commits.append([(p.topic, p.partition, p.offset, p.metadata) for p in offsets])

    def get_watermark_offsets(self, place, cached):
        return 0, 77

    def close(self):
        self.closed.set()


class Bed:
    def __init__(self):
        self.consumer, self.spans, self.left, self.dropped = Consumer(), [], [], []
        self.failures, self.ends, self.now_s = [], set(), 1_000.0
        self.reader = Reader(
            self.consumer,
            SOURCE,
            [RETRY],
            locate=lambda seat, committed: max(0, committed.offset),
            due_ms=lambda message: Journey.of(message, retried=True).due_ms,
            hand=self.spans.append,
            leave=self.left.extend,
            drop=self.dropped.extend,
            failed=self.failures.append,
            ends=lambda *end: self.ends.add(end),
            clock=lambda: self.now_s,
        )

    def put(self, topic, partition, *offsets, due_ms=0):
        headers = Journey(SOURCE, partition, 0, 0, due_ms=due_ms).headers()
        queue = self.consumer.log.setdefault((topic, partition), deque())
        for offset in offsets:
            given = {"topic": topic, "partition": partition, "offset": offset, "value": b"v"}
            queue.append(Message(headers=headers, timestamp=(2, 0), **given))

    def handed(self, topic):
        spans = [span for span in list(self.spans) if span.seat.topic == topic]
        return [message.offset() for span in spans for message in span.messages]


@pytest.fixture
def bed():
    one = Bed()
    one.consumer.run("on_assign", (SOURCE, 0), (SOURCE, 1), (RETRY, 0), (RETRY, 1))
    one.reader.start()
    yield one
    one.reader.stop()
    one.reader.join(10)
    assert not one.reader.is_alive()
    assert one.failures == []


def test_a_head_that_is_not_due_holds_up_only_its_partition(bed):
    bed.put(RETRY, 0, 0, due_ms=2_000_000)
    bed.put(RETRY, 0, 1, 2)
    bed.put(RETRY, 1, 0)
    until(lambda: (RETRY, 0) in bed.consumer.paused)
    bed.put(SOURCE, 0, 0, 1)
    until(lambda: bed.handed(SOURCE) == [0, 1] and bed.handed(RETRY) == [0])
    bed.now_s = 1_999.9
    bed.put(SOURCE, 1, 0)
    until(lambda: bed.handed(SOURCE) == [0, 1, 0])
    assert bed.handed(RETRY) == [0]
    bed.now_s = 2_000.0
    until(lambda: bed.handed(RETRY) == [0, 0, 1, 2])
    until(lambda: not bed.consumer.paused)
    assert bed.consumer.seeks == []


def test_no_more_is_handed_over_than_there_is_room_for(bed):
    bed.put(SOURCE, 0, *range(3_000))
    bed.put(SOURCE, 1, *range(3_000))
    until(lambda: len(bed.handed(SOURCE)) == HANDED_ROWS_MAX)
    until(lambda: {(SOURCE, 0), (SOURCE, 1)} <= bed.consumer.paused)
    assert len(bed.handed(SOURCE)) == HANDED_ROWS_MAX
    assert bed.consumer.log[SOURCE, 0], "the rest was not read"
    assert len(bed.consumer.log[SOURCE, 0]) >= 3_000 - HANDED_ROWS_MAX - 2 * HELD_ROWS_MAX
    done = 0
    while len(bed.handed(SOURCE)) < 6_000:
        spans = len(bed.spans)
        bed.reader.taken(sum(map(len, bed.spans[done:spans])))
        done = spans
    by_partition = {0: [], 1: []}
    for span in bed.spans:
        by_partition[span.seat.partition] += [m.offset() for m in span.messages]
    assert by_partition == {0: list(range(3_000)), 1: list(range(3_000))}
    assert {span.seat.partition for span in bed.spans[:8]} == {0, 1}


ALL = ((SOURCE, 0), (SOURCE, 1), (RETRY, 0), (RETRY, 1))


def test_a_revoke_waits_for_the_engine_then_commits_then_lets_go(bed):
    bed.put(SOURCE, 0, 0)
    until(lambda: bed.spans)
    seat = bed.spans[0].seat
    bed.reader._leave = lambda seats: [
        bed.left.extend(seats),
        bed.reader.commit(seat, 1, "meta"),
    ]
    bed.consumer.run("on_revoke", *ALL)
    until(lambda: not bed.consumer.assigned)
    assert len(bed.left) == 4
    assert all(one.revoked for one in bed.left)
    assert bed.consumer.commits == [[(SOURCE, 0, 1, "meta")]]
    bed.reader.commit(seat, 5, "late")
    bed.consumer.committed_at[SOURCE] = (1, "meta")
    bed.consumer.run("on_assign", (SOURCE, 0))
    bed.put(SOURCE, 0, 1)
    until(lambda: bed.handed(SOURCE) == [0, 1])
    assert bed.spans[1].seat is not seat
    assert bed.consumer.commits == [[(SOURCE, 0, 1, "meta")]]


def test_lost_partitions_are_dropped_without_a_commit(bed):
    bed.put(RETRY, 0, 0, due_ms=2_000_000)
    until(lambda: (RETRY, 0) in bed.consumer.paused)
    bed.consumer.run("on_lost", *ALL)
    until(lambda: bed.dropped)
    assert all(one.revoked for one in bed.dropped)
    bed.now_s = 3_000.0
    bed.consumer.run("on_assign", (SOURCE, 0))
    bed.put(SOURCE, 0, 0)
    until(lambda: bed.handed(SOURCE) == [0])
    assert bed.handed(RETRY) == []
    assert bed.consumer.commits == []


def test_the_end_of_each_log_is_told_and_a_stop_commits(bed):
    until(lambda: len(bed.ends) == 4)
    bed.put(SOURCE, 0, 0)
    until(lambda: bed.spans)
    bed.reader.stop()
    bed.reader.commit(bed.spans[0].seat, 1, "m")
    until(bed.consumer.closed.is_set)
    assert [(SOURCE, 0, 1, "m")] in bed.consumer.commits
