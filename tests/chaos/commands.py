"""A client of a decider: sends commands with keys, and sends them again until it has a verdict.

Written with a plain producer, fastavro and a plain Redis client. `acks` is all that it was told.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import redis

from tests.chaos.load import Encoder, producer

RETRY_S = 3.0


@dataclass
class Order:
    """One command, with the key that all of its deliveries carry."""

    record: str
    book: str
    row: dict[str, Any]
    key: str
    repeat: bool = False
    """Sent twice at once, as a nervous client does."""
    sent: int = 0
    due_s: float = 0.0


class Client:
    """Sends orders to one command topic; `rules` of resending are those of any HTTP client."""

    def __init__(self, bootstrap: str, topic: Any, ids: dict[str, int], redis_port: int) -> None:
        self.topic = topic
        self._encode = Encoder(topic, ids)
        self._producer = producer(bootstrap)
        self._channel = f"chaos-replies:{uuid4().hex}"
        self._heard = redis.Redis(port=redis_port).pubsub(ignore_subscribe_messages=True)
        self._heard.subscribe(self._channel)
        self._open: dict[str, Order] = {}
        self._deliveries: dict[str, Order] = {}
        self._numbers = count()
        self.acks: list[dict[str, Any]] = []
        self.resent = 0

    @property
    def answered(self) -> int:
        """Verdicts heard so far."""
        return len(self.acks)

    @property
    def waiting(self) -> int:
        """Orders without a verdict so far."""
        return len(self._open)

    def run(
        self,
        orders: Iterator[Order],
        *,
        in_flight_max: int = 400,
        on: Callable[[], None] = lambda: None,
    ) -> None:
        """Send all of them and return once each has a verdict; `on` is called all the time."""
        queue: deque[Order] = deque()
        while True:
            if len(queue) < in_flight_max:
                queue.extend(islice(orders, in_flight_max))
            if not queue and not self._open:
                break
            while queue and len(self._open) < in_flight_max:
                order = queue.popleft()
                self._open[order.key + ("~" if order.key in self._open else "")] = order
                for _ in range(1 + order.repeat):
                    self._send(order)
            self._producer.poll(0)
            self._hear()
            self._send_again()
            on()

    def _send(self, order: Order) -> None:
        correlation = f"{next(self._numbers)}-{order.key}"
        self._deliveries[correlation] = order
        value = self._encode(order.record, order.row)
        headers = {
            "headrace-correlation-id": correlation,
            "headrace-reply-to": self._channel,
            "headrace-idempotency-key": order.key,
            "headrace-fingerprint": hashlib.sha256(value).hexdigest()[:32],
        }
        raw = [(name, text.encode()) for name, text in headers.items()]
        self._producer.produce(self.topic.name, value, order.book.encode(), headers=raw)
        order.sent += 1
        order.due_s = time.monotonic() + RETRY_S

    def _hear(self) -> None:
        wait_s = 0.01
        while (message := self._heard.get_message(timeout=wait_s)) is not None:
            wait_s = 0.0
            fields = msgspec.msgpack.decode(message["data"])
            correlation, status, body, topic, partition, offset, source, replay, *_ = fields
            order = self._deliveries.get(correlation)
            if order is None:
                continue
            for name in (order.key, order.key + "~"):
                if self._open.get(name) is order:
                    del self._open[name]
            self.acks.append({
                "correlation": correlation, "key": order.key, "status": status,
                "body": json.loads(body), "topic": topic, "partition": partition,
                "offset": offset, "source": source, "replay": replay,
            })  # fmt: skip

    def _send_again(self) -> None:
        now_s = time.monotonic()
        for order in list(self._open.values()):
            if order.due_s < now_s:
                self._send(order)
                self.resent += 1

    def write(self, path: Path) -> Path:
        """All verdicts, one JSON object a line."""
        path.write_text("".join(json.dumps(ack) + "\n" for ack in self.acks))
        return path
