"""The producer of a decider: sends each record once and tells which epochs may have lost one.

Deliveries are not reported: what was read back was delivered. Losses are, and what hangs is found
by the owner's deadline. librdkafka's idempotent producer skips a record that timed out and goes on
(so the reader rule has to find the hole), and after a fatal error sends nothing more: then another
producer takes its place.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from streams.runtime.decider.wire import Headers
from streams.runtime.native.sending import FULL, Record, Sender

DELIVERY_TIMEOUT_MS = 10_000
"""Below a decider's `deadline_ms`."""
LINGER_MS = 0.2
"""So that all records of a flush are in one request; without it the first goes alone, and the
producer's own thread takes twice the time.
"""
CONFIG = {
    "linger.ms": LINGER_MS,
    # With more, librdkafka spins while acknowledgements are awaited: see `connectors.producer`.
    "max.in.flight.requests.per.connection": 1,
    "socket.nagle.disable": True,
    "message.timeout.ms": DELIVERY_TIMEOUT_MS,
    "delivery.report.only.error": True,
    "queue.buffering.max.messages": 200_000,
}
TOGETHER_MAX = 500
"""So many records go to the producer at once: the broker has work while more is decided."""
_WAIT_S = 0.05
_PATIENCE = 200

log = structlog.get_logger()


class Outgoing:
    """Sends to the event topic. Used by one thread; losses are collected for `failures`."""

    def __init__(self, topic: str, connect: Callable[[], Sender]) -> None:
        self._topic = topic
        self._connect = connect
        self._sender = connect()
        self._waiting: dict[int, list[Record]] = {}
        self._epochs: dict[int, str] = {}
        """The nonce of each partition's newest epoch that wrote through this producer."""
        self._lost = ""

    def to(self, partition: int) -> Callable[[str, bytes, bytes, Headers], None]:
        """Sends records to a partition: nonce of the epoch, key, value, headers. Each is sent once,
        soon or by `flush`; a failure, now or later, shows in `failures`.
        """
        waiting, epochs = self._waiting.setdefault(partition, []), self._epochs

        def append(nonce: str, key: bytes, value: bytes, headers: Headers) -> None:
            epochs[partition] = nonce
            waiting.append((key, value, headers))
            if len(waiting) >= TOGETHER_MAX:
                self._send(partition, waiting)

        return append

    def flush(self) -> None:
        """Hand all records to the producer."""
        for partition, waiting in self._waiting.items():
            if waiting:
                self._send(partition, waiting)

    def failures(self) -> list[tuple[int, str, str]]:
        """Partition, nonce and reason of each epoch that may have lost a record since the last
        call.

        After a loss the producer is thrown away, with what it still holds, and all epochs that
        wrote through it are over: after a fatal error it would send nothing more.
        """
        self._sender.producer.poll(0)
        if (lost := self._sender.lost()) is not None:
            self._lost = self._lost or lost.str()
        if not self._lost:
            return []
        log.warning("producer replaced", topic=self._topic, reason=self._lost)
        found = [(*epoch, self._lost) for epoch in self._epochs.items()]
        self._epochs.clear()
        self._lost = ""
        self._sender.producer.purge()
        self._sender = self._connect()
        return found

    def close(self) -> None:
        """Let what is on its way land, for a moment; it counts or not as the log says."""
        self.flush()
        self._sender.producer.flush(1.0)

    def _send(self, partition: int, records: list[Record]) -> None:
        done, error = self._sender.send(partition, records)
        for _ in range(_PATIENCE):
            if error is None or error.code() != FULL:
                break
            self._sender.producer.poll(_WAIT_S)
            done, error = self._sender.send(partition, records, done)
        if error is not None:
            self._lost = self._lost or error.str()
        records.clear()
