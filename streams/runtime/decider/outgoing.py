"""The producer of a decider: sends each record once and tells which epoch lost one.

Deliveries are not reported: what was read back was delivered. Failures are, and what hangs is
found by the owner's deadline. librdkafka's idempotent producer skips a record that timed out and
goes on (so the reader rule has to find the hole), and after a fatal error sends nothing more: then
another producer takes its place.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

import structlog
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.runtime.decider.wire import Headers

DELIVERY_TIMEOUT_MS = 10_000
"""Below a decider's `deadline_ms`."""
CONFIG = {
    "linger.ms": 0,
    "socket.nagle.disable": True,
    "message.timeout.ms": DELIVERY_TIMEOUT_MS,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 200_000,
}
_WAIT_S = 0.05
_PATIENCE = 200

Report = Callable[[KafkaError | None, Message], None]

log = structlog.get_logger()


class Outgoing:
    """Sends to the event topic. Used by one thread; failures are collected for `failures`."""

    def __init__(self, topic: str, connect: Callable[[], Producer]) -> None:
        self._topic = topic
        self._connect = connect
        self._producer = connect()
        self._failures: deque[tuple[int, str, str]] = deque()
        self._reports: dict[tuple[int, str], Report] = {}

    def to(self, partition: int) -> Callable[[str, bytes, bytes, Headers], None]:
        """Sends records to a partition: nonce of the epoch, key, value, headers. Each is sent once;
        a failure, now or later, shows in `failures`.
        """
        topic, reports = self._topic, self._reports

        def append(nonce: str, key: bytes, value: bytes, headers: Headers) -> None:
            report = reports.get((partition, nonce)) or self._reporter(partition, nonce)
            try:
                self._producer.produce(topic, value, key, partition, report, headers=headers)
            except BufferError:
                self._append_slowly(partition, nonce, (value, key, partition, report), headers)
            except KafkaException as error:
                self._lost(partition, nonce, str(error))

        return append

    def failures(self) -> list[tuple[int, str, str]]:
        """Partition, nonce and reason of each epoch that lost a record since the last call.

        After a failure the producer is thrown away, with what it still holds, and all epochs that
        wrote through it are over: after a fatal error it would send nothing more.
        """
        self._producer.poll(0)
        if not self._failures:
            return []
        found = list(self._failures)
        log.warning("producer replaced", topic=self._topic, reason=found[0][2])
        found += [(*epoch, "producer replaced") for epoch in self._reports]
        self._reports.clear()
        self._failures.clear()
        self._producer.purge()
        self._producer = self._connect()
        return found

    def close(self) -> None:
        """Let what is on its way land, for a moment; it counts or not as the log says."""
        self._producer.flush(1.0)

    def _reporter(self, partition: int, nonce: str) -> Report:
        for other in [one for one in self._reports if one[0] == partition]:
            del self._reports[other]
        report = partial(self._reported, partition, nonce)
        self._reports[partition, nonce] = report
        return report

    def _reported(self, partition: int, nonce: str, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._lost(partition, nonce, error.str())

    def _lost(self, partition: int, nonce: str, reason: str) -> None:
        self._failures.append((partition, nonce, reason))

    def _append_slowly(
        self, partition: int, nonce: str, record: tuple[object, ...], headers: Headers
    ) -> None:
        for _ in range(_PATIENCE):
            self._producer.poll(_WAIT_S)
            try:
                self._producer.produce(self._topic, *record, headers=headers)
            except BufferError:
                continue
            except KafkaException as error:
                self._lost(partition, nonce, str(error))
            return
        self._lost(partition, nonce, "the producer's queue is full")
