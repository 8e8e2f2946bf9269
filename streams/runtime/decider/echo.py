"""Reads back the event partitions of a decider: one thread, one consumer, no group.

Partitions come and go as they are owned; each is read from the offset it is asked for. Only this
thread touches the consumer.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, Message, TopicPartition

from streams.runtime.decider.ports import Last
from streams.runtime.decider.wire import DECISION, Headers, decision_header
from streams.runtime.lane.errors import passing
from streams.runtime.lane.feed import Feed, MessageFeed, Run
from streams.runtime.lane.span import appended_ms, offset_of, since
from streams.runtime.native.columns import Columns

POLL_MS = 10
IDLE_MS = 100
"""How often an owner hears that nothing came, after `QUIET_S` of it: timers and lost records are
seen to that much later, records are not. In a worker with many deciders all at rest, hearing it
every `POLL_MS` was most of what the process did.
"""
QUIET_S = 1.0
"""How long to wait for a record: also how punctual timers are."""
OUT_MAX = 4
"""How many reads may wait for the decider; then the fetcher's queue fills, and then the broker
waits. There is no group that would miss the polls.
"""

_OFFSET, _VALUE, _HEADERS = Message.offset, Message.value, Message.headers


class Echo:
    """Records of one event partition, as an owner reads them. Empty: nothing has come for a while.

    `partition` is -1 then.
    """

    def __init__(self, partition: int = -1, messages: Sequence[Message] = ()) -> None:
        self.partition = partition
        self._messages = messages
        self.offsets: Sequence[int]
        self.values: Sequence[bytes | None]
        self.headers: Sequence[Headers | None]
        self.decisions: Sequence[bytes | None]
        if isinstance(messages, Columns):
            self.offsets = messages.offsets().tolist()
            self.values = messages.values()
            self.headers = messages.headers_on_demand()
            self.decisions = messages.first_headers(DECISION)
        else:
            self.offsets = list(map(_OFFSET, messages))
            self.values = list(map(_VALUE, messages))
            self.headers = list(map(_HEADERS, messages))
            self.decisions = list(map(decision_header, self.headers))

    def append_ms(self, at: int) -> int:
        return appended_ms(self._messages, at)


class EchoReader(threading.Thread):
    """Hands over an `Echo` for each run of records; `done()` must be called for each."""

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        *,
        hand: Callable[[Echo], None],
        failed: Callable[[BaseException], None],
        feed: Feed | None = None,
    ) -> None:
        super().__init__(name=f"echo-{topic}", daemon=True)
        self._consumer = consumer
        self._feed = feed or MessageFeed(consumer)
        self._topic = topic
        self._hand = hand
        self._failed = failed
        self._asked: deque[tuple[int, int | None]] = deque()
        self._begins: dict[int, int] = {}
        self._slots = threading.Semaphore(OUT_MAX)
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._busy_s = self.polled_s = time.monotonic()

    def follow(self, partition: int, offset: int) -> None:
        """Read a partition from an offset on."""
        self._asked.append((partition, offset))
        self._woken.set()

    def leave(self, partition: int) -> None:
        """Read a partition no longer; a last read of it may still come."""
        self._asked.append((partition, None))
        self._woken.set()

    def done(self) -> None:
        """One `Echo` is dealt with."""
        self._slots.release()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._woken.set()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.polled_s = time.monotonic()
                while self._asked:
                    self._turn_to(*self._asked.popleft())
                self._deliver(self._poll())
        except BaseException as error:
            self._failed(error)
        finally:
            self._consumer.close()

    def _turn_to(self, partition: int, offset: int | None) -> None:
        self._busy_s = self.polled_s
        place = TopicPartition(self._topic, partition)
        if partition in self._begins:
            self._feed.leave([partition])
            self._consumer.incremental_unassign([place])
            del self._begins[partition]
        if offset is not None:
            self._feed.place([partition])
            place.offset = offset
            self._consumer.incremental_assign([place])
            self._begins[partition] = offset

    def _poll(self) -> list[Run]:
        wait_s = (POLL_MS if self.polled_s - self._busy_s < QUIET_S else IDLE_MS) / 1000
        if not self._begins:
            self._woken.wait(wait_s)
            self._woken.clear()
            return []
        runs = self._feed.first(wait_s)
        if runs:
            self._busy_s = self.polled_s
        return runs

    def _deliver(self, runs: Sequence[Run]) -> None:
        if not runs:
            self._give(Echo())
        for partition, run in runs:
            begins = self._begins.get(partition)
            if begins is None:
                continue
            # A partition that was left and taken up again may show what was fetched before.
            fresh = since(run, begins)
            if fresh:
                self._begins[partition] = offset_of(fresh, -1) + 1
                self._give(Echo(partition, fresh))

    def _give(self, echo: Echo) -> None:
        while not self._slots.acquire(timeout=0.1):
            if self._stopping.is_set():
                return
            self.polled_s = time.monotonic()  # the decider is what is slow
        self._hand(echo)


def record_at(consumer: Consumer, topic: str, partition: int, offset: int) -> Last | None:
    """The record at an offset; None where the log has none there. Uses the consumer up."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    until_s = time.monotonic() + 10.0
    while time.monotonic() < until_s:
        message = consumer.poll(0.5)
        if message is None or passing(message.error()):
            continue
        if message.offset() != offset:
            return None
        return Last(offset, message.value(), message.headers())
    raise TimeoutError(f"{topic}/{partition}/{offset} cannot be read")
